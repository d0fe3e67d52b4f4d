"""A job store as APScheduler 3.11 has written it, kept as text: the tests read it where it is not installed.

Made in Europe/Berlin by

    add_job(shop.report, "cron", hour=7, minute=30, day_of_week="mon-fri", kwargs={"to": "ada"},
            misfire_grace_time=300, coalesce=True, id="report")
    add_job(shop.sync, "interval", minutes=5, args=[1, "users"], max_instances=3, jitter=20,
            misfire_grace_time=None, coalesce=False, start_date=datetime(2027, 1, 1, tzinfo=UTC), id="sync")
    add_job(shop.sync, "date", run_date=datetime(2030, 1, 1, 12), args=[2, "x"], id="once")
    add_job(shop.report, "cron", day="2nd fri,last sun", hour=1, id="position")  # paused
    add_job(shop.report, "cron", day="13", day_of_week="fri", hour=1, end_date="2030-01-01", id="thirteenth")
    add_job(shop.report, "cron", week=7, id="week")
    add_job(shop.report, OrTrigger([CronTrigger(hour=1)]), id="either")
    add_job(shop.report, "cron", day_of_week="*/3", second="*/20", args=[shop.Customer("Ada")], id="object")
"""

from __future__ import annotations

import base64
import sqlite3
import zlib
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TABLE = "apscheduler_jobs"


class Job(NamedTuple):
    """When it runs next, in seconds, and its pickle, packed."""

    next_run_time: float | None
    packed: str

    @property
    def state(self) -> bytes:
        return zlib.decompress(base64.b85decode(self.packed))


def write(file: Path, more: Mapping[str, bytes] | None = None) -> None:
    """The store as a SQLite file, with these pickles besides."""
    rows = [(name, job.next_run_time, job.state) for name, job in JOBS.items()]
    rows += [(name, 1.0, state) for name, state in (more or {}).items()]
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(
            f"create table {TABLE} (id text primary key, next_run_time float, job_state blob not null)"
        )
        connection.executemany("insert into apscheduler_jobs values (?, ?, ?)", rows)


JOBS = {
    "either": Job(
        1794790800.0,
        "c-n<j-)q!B5bo9Veo`wwizuR85l_LlzUf&(idQIAu~5QZGRdx&>>m5WUIjs4N`-mr`cL{-IGZ-7_IfrCVRmM|`DQlX<lEZM="
        "g~^_eD!^7eFklWl76Rwt0MK-1YtR7k5T4i;<0DAnr>;BDs4TstQL75!gtx!Bpgy#fF4|U%^*?bSV$prkDXn;f02CVH@|yg;|"
        "*eI*UA3S<HM_~XeGCX^r{P-V^;|)O8BBAcx;cID6Ei%n##d4YXc9qLsZC2k$FJon_!Z^6FWH-$)o^(;`a!%ZIh?(_J=fgb?z"
        "F=w2f0{!H=*FGOg`qCZI?|w|%^~wB5l)7It1T1FyqjJ~l>@mDF-{42*8BD@>e1##~|jDfVDC)nLLmxaLL%e`n(Qi=x<`J8CY"
        "BjD@KmnK5%?ejmGUm9+fdcK9P)D}&qf{wd!)^!!N`;Lql;jaTe=H@g~pBW1_Sk)00!lLbt4MBe3~n-$%a$R4r9DvSSD;K3gr"
        "uAHW{A6438+}L9>hsA5^6BgGpp^Xi~j|x^9?ozpCDWoG2)V%NKVE%Dug&*v!EFcUdN~YH#0GpqLwWREkJMoO?BR3||%^-1Bk"
        "wjXxJ}_cBH+~bFlcUO_v5BQ#$J?baGzG-DW(mY$JHkBeM6m))0;I3?lFedT6U$@*CPddI%xtWkJkQ5=5c*~F%n!S*U%gw6>Q"
        "CYMov<Zt@EbA5rhf",
    ),
    "object": Job(
        1794743260.0,
        "c-n<i-)j>=5Vp-Vxg^Gd_@ED>h=mp;efO=66(krz1VJdr=58*#?cMINKWrih`k+*px2}Jm@BS6eUh~7+2JhwOzWrvtxt;mGZ"
        "2kPzxK%%&{VujXf;K`)Kit4gk$G&Y@d>2XW0X6Ydh8mms^=Oir3q|VEhZDt9v`sEq#QC=fbP#x(@!;(!tQ`x@8--4zxUOX6y"
        "F$bVr)eTpOgfT@z{yN3Tde71T3>Qa4`<2LgtFX4-~!%A>r-B$x5WB1^Dm&t;gPx)2f2~L(qi??bm3>Sf*`~F$;c#G01EYH**"
        "0+X8bYz^y9U?_vb8ZA2I_k!^iRmFp{jK#-kZ9x`2)_Nd`G{h4tsyg=wY1gsTi1xU*j3ZzlE*isEPqEVM8(7Aik7W9G*EA$DF"
        "XY5CQ5_!HbJ1MK<JbG~!z`Cfg%pDok2U$EJm{N~(7#%Aj?+wTERujNE%gsxAzQ_J0$*(J3^<;lFjk1GX+jmrv;Rzh4ky-sLF"
        "YnDPfn(qIJ22v%n>&o|PCSdbKSWC+~a%0+>DWuLSnsI9}V2qfam@pS|18wHO8LP_Gc83c+$e1_dZ)Bm<vzlGQ&4qRDmcryhL"
        "o(4Ug(Mgum@ZBgE5M{cOVlgbG$BV=CQ~rsv?pO|6Yb<BALFpi|ArTS&}sedZr|SDC0BcXKUl%_{{V>Wi6{",
    ),
    "once": Job(
        1893495600.0,
        "c-mD^Jx{|h5G7S1DbR(Dg&CHxGx9N@ZitD+a-B<J)v+UgKtQU11u=N*@i+MmoYO8?vhL~K^ZC8|*#CLY_Qtcu^O!$_b<${DW"
        "N{)Zj8mfpP^p6!7-z0E{gr!7IQLdI4Oon)ymz97Dk!k!j&)_lJv}_SrSiB_Zt&t0>6<pA@r4bVZAC>YUUvWB25%1Y-z+;G%~"
        "59=r1DZb`nmzny-x#U@n$qgT^oW=1n(0he#V0CrC2GzFMPl_zYEs%aCr?@$&@d#>4s%2U;q)kp)7d?H4n;DWNsUWi%HA|(#3"
        "<-%Sf!Lqj|DA-R|L}ldhH)SYx>WHhNF-gy9MtE$=(dJ3cUS?l~>frS4qA;91(hsBh0g`3DaCn5z",
    ),
    "position": Job(
        None,
        "c-n<i-)q!B5Wd#jZ_a{mMMM#ccOd7x2x_&01Wze~qL#3iOm5dEyJ3IWt03r$RG2r{|JT{{?y9z@dC6pEzWKf{%zSD7yc#v?="
        "d&MT`y*&0l=SfiZi>ufr&31PkijT-GWFOuTvhipR7zWqZL7s>2HN8`t4zuva|P(}B5TH}4$%H%dc9h7{_vx(p2+w{yontvO8"
        "BHC5Y^O)!U}0<>I^KiHuPdARE5kHg>NZ*7DCE*6DKQ?9v0xg`F)RrJ*QO#cXvS-A{eN%J!6@+NyaSr33fnc%ea*bC^F*@$o7"
        "r3+Q*A7?CvrHPs7K`07jCPBs@9>Mn9k@Op-y)Tw(nQ_F-OWFyUtg4%}H!@p~r@9u>vjDzW6k$XKZS#7vo+@@v?8uB7FE%HcP"
        "$S%$Rdw@&!Zf#;*T!0)VJTTj^Wi~M5jrHmaD@_RrI`EA^O4RA=gmx~2BFKS4Wv8Sp~O{6Qs(zK6GQ9h1{@&2lhKZu+BVcc?4"
        "sFifX^m7`bfL<^EaxMQtWS=+_l_&oiaQ%#jE2o!c$?MiWlQUT3u$c>OY%muUtPb2?<65PVj+Sc4`{vB{ySTyM$BlCc1F4eP{"
        "}6z!55ihHnu(jz_Rb-7R?)7tmy3oG(=+2o*g8C_Bl1h*m*;t<6o%wOGSe)DBph2X(n%F7z@$KnIw;vZp{uh@reH#KAYpD3?c"
        "{0y#EpLe(%qe<",
    ),
    "report": Job(
        1794810600.0,
        "c-nnbO>fgc5KR*&&WAz~2Ly)}R8i4NReI+}OOa627F7r&q{`aZ<LnY=ZS4n5kdWYliZr(_f0AFptVu%p5q$CU+j(!s;~9Ue|"
        "Jn#D<@MF=VE7r77P)l&HLQxnVM9TYE8{Rot&AOZG|!6{b22na42Pf`K4yiEIV3g%)tj-p7b~*D&LQ32%_6Vd?srG2_*%b;O("
        "VweC70l^Ij|x#LTYjyf?>w^SZw-JA=8}TM}luWB)%0{S%`R)f&1ak9CnYa$_v;(0F?<}e#y4AVah}aGvH3J2{M`EMk*jnv^%"
        "Gle!8;u-Yg1R2Ta3j|FC!g3?v&<;lUIbHJ~kYlt9XCX51xqU{Wa1zLh=)Zm&+U9EshRS$4D_=D9G?1`2ng2h0xm2DXoLY54V"
        "W_!id3o_74%CEq@Ge78K{dkfk6D>gk%@7C55HeIc3eE=BU(gYX8t`^-Z)7`1;P_`&fqnW|a(%?Bh^ucs=#^exgw_%6Ov7QR0"
        "jq6u1$e0I#E%QD3R~FB$T5?_gj~zelhx~0nyy?*x3u$Rk<}UA-6`Q2kyrs|(=Q3He<C>yEib|;fY<v>N&?21J0ZrrtVrz1mp"
        "Kv}r7%(-|ZWkM)ixScIuNs>F8cUede2drc!B}YO14Ki`Vu<_}x#PVxY{oguK*vBM*d4P;MEhizj6wT_?n;=LNLl$;fK9&(H{"
        "q2#Y=^%)_rp#9PjLK^UnJZ61CmUfUH",
    ),
    "sync": Job(
        1798761600.0,
        "c-l=+O-sW-5N%r9q=h1gC&7a!6{OxhDjrJEgLv{1wwp<^cDo7tQL9kUgNm@XuD??7H#nOFX_hc=-ptP1d9VHN-=I@}Yj<M9B"
        "}m0e;o`t{S?cVLdKMHzW_%c`qO2|&D%6tYIY?&@Nu_83so@|eEvqI>Xpl?7o!y<b@V>pVai?z%<%%Hg+DNknyp#f*jb?^%&4"
        "j|~IcTD_@3oPyGLe-C9}rGGM1GhUQ87B_;6B`)v*T+c%L>jfL2~9-sM(RyMCv3Z+AH|r1-IeGU5&z@ptZpj2U~C2_;l#g6u2"
        "gs#~pt@ar8U>wL}CWZ3J#@^uKp;6nAdUf~MCF9+}31i}%e8FRXwXU7~qm3K=n6qsK(%${XJ|3Jt{3b})ac$u(95!KW5IySHE"
        "}V-k{F5(-JZ0m{;na8MN7mmM$2DnS=D5fpG@&yEGGbRvyt+KXc|`2(-C#0>",
    ),
    "thirteenth": Job(
        1818111600.0,
        "c-n<i-)j>=5YE+0a!rT@A4DGnK?<#63O*IzOie+85sDxP<=EWKW!GHxj{RX%LC_beFmGM|O2NOu*~<@8+vvUQ+|2jQd^<byr"
        "T*hEtX1D<w};J-ptLBY8w9u|Qim<Wg)#uraED=LW#X`{c~L%BP!`HKY#JrTV^9w7vr;D<Qk#S7F1)&%C`yOzBRbwLke6=%tD"
        "|x}7;Ir=#1uXi5*$V&D{>>GrmSNy%ovZw$VY|D3Nqi5`O2H*-;S*;MKa03eRC%cJAJE)5)OKxa^bH~d0W~rW#W_>a6^nhrgI"
        "x3fB53-=A}DoHGc)cyd{p`t8z3l0ePz3DYfX~##?q5DBSKb4afdxbyW-{^OeGLVAQIX&~XYGv$=5>*oIlDK>Nn~8o0Z;#5xi"
        "?FY>&<ax80Ms11~Es7K6>_#<q+F6i~H%HexhpL)0Bk1zO>Q^yag0Drck?Yv~?Z?c=Yw^DXa%<mQRDejywIfm;>_9z|JGoiF`"
        "gARr{s|>rSu>B5TaxHgwM&8Y`ZdbByWVT6FTx9Vg!BX8_52nyRMDqS1<i~?>u59;@7G7AjO4VD(2ZRs)#y6%yTAHn;`YVhYF"
        ">2Qs8j?b$|6>3)J_uuIcZPOELp+1Tnt}$Yxtt;lnHp=ikB!M$Wl`5C{c=n1OogV0fOxD}0&z9#wBu1yupD#(G=-fho5i$zhR"
        "Fo9k9H)?OsuS&<M{*Hjh|5`Sl<oX{S8iAql5",
    ),
    "week": Job(
        1802646000.0,
        "c-oay&ubGw6i%B>vPp;mPkInVT5Le#-J6ZANH9VX1feXG-M2eqc4wCPVG}{ni&S{Gj(??R@6K$KMPq}wm-+V1_ul*7@V(Ei?"
        "?0Q3>icAmu=4?=VuIW09`3WmVsHVla7Su*Y_YGXD4$9wh13>1TCywyY4I*8RZJl<Imq!ks>ZQ&g|I(y$D1|t%8tHR*NE;-_c"
        "7G0fRBQM#c*y|t{GRZY6hBU?YS8GTgFr2;5!Fjdg$Wa$ncWIiyZ7%duDNPVx%bH$uY>BdGS@Wr!<i|N{9wK!w`6~!R?emo+x"
        "|nMt-nU`*_X5?lDnt>VN71FyN$c!h;nM_W(Vnq6AW6a&0fM56e=5@(<~I;Nk8TzcX?0EYDBsz@`@lN<(R9YEI0Y-oxH2!8QF"
        ";4t<EN!iOzAxTJ^YmX4|m`nXOTJ}0Z!>CL&#gsgUFcHcS=Z0FD>J@{7fAK~zf@C^P|e&mW^D`iq?JMCbQlM0x1-CLESn~G!K"
        "35rA-Rqop%?0(G-s4%joP3qqCblRXVrVX>jZx@UkXN3RAP!J2A{3`>n{hn#<j6O4S=eQ-rMhoYU&c+-V5Sb}E!uH~#LT(^ee"
        "zQ`y3#QzAL6k`nL*y64uVNSrl7ouDnQKsxW#l$R6CQ)|w*wAK9ZAEl`51baZ^J7)>2-eW53hIK(mQ@d%=j0AT#Ql",
    ),
}
