"""Build one validated manifest declaration from a train, an input, an occasion and options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from trax.errors import DefinitionError, InvalidInput, format_value
from trax.records.states import ScheduleType
from trax.records.when import Cron, Interval, Schedule
from trax.schedule.declaration import Declaration
from trax.schedule.occasion import AfterManifest, Once, schedule_type_of
from trax.schedule.variance import variance_seconds
from trax.train import Train
from trax.train.names import check_name

if TYPE_CHECKING:
    from trax.schedule.occasion import Occasion
    from trax.schedule.options import ScheduleOptions
    from trax.train import Retry


class Encoder(Protocol):
    """Encodes an input as JSON text; raises InvalidInput for an invalid one."""

    def encode(self, value: Any) -> str: ...


def build_declaration(
    train: Train[Any, Any],
    external_id: str,
    value: Any,
    occasion: Occasion,
    options: ScheduleOptions,
    *,
    codec: Encoder,
    group: str | None = None,
    batch: str | None = None,
) -> Declaration:
    """Build a declaration. Raises DefinitionError or InvalidInput.

    Its group is that of its options, else of its train, else `group`, else one named like the manifest.
    """
    check_name(external_id, "an external id")
    _check_fit(external_id, occasion, options)
    return Declaration(
        external_id=external_id,
        train=train.name,
        input=_encode_input(external_id, train, value, codec),
        schedule_type=ScheduleType.DORMANT_DEPENDENT if options.dormant else schedule_type_of(occasion),
        schedule=_schedule(occasion, options),
        delay=occasion.delay if isinstance(occasion, Once) else None,
        depends_on=occasion.parent if isinstance(occasion, AfterManifest) else None,
        group=options.group.name or train.options.group or group or external_id,
        batch=batch,
        priority=train.options.priority if options.priority is None else options.priority,
        enabled=options.enabled,
        max_retries=_max_retries(train, options),
        retry=_retry(train, options),
        timeout=options.timeout or train.options.timeout,
        misfire_policy=options.on_misfire[0],
        misfire_limit=options.on_misfire[1],
        misfire_threshold=options.misfire_threshold,
        exclusions=options.exclude,
        start=options.start,
        max_instances=options.max_instances,
        renamed_from=options.renamed_from,
    )


def check_train(place: str, train: Any) -> None:
    if not isinstance(train, Train):
        raise DefinitionError(
            f"{place} needs a train (got {format_value(train)}); use @app.train or app.train(name, route)"
        )


def _check_fit(external_id: str, occasion: Occasion, options: ScheduleOptions) -> None:
    """Refuse options that would have no effect on this kind of manifest."""
    place = f"manifest {external_id!r}"
    if isinstance(occasion, AfterManifest):
        check_name(occasion.parent, f"{place}: what it depends on")
        if occasion.parent == external_id:
            raise DefinitionError(f"{place} depends on itself; name another manifest")
    elif options.dormant:
        raise DefinitionError(f"{place} cannot be dormant: only a manifest that depends on another one can")
    if not isinstance(occasion, Interval | Cron):
        if options.variance:
            raise DefinitionError(
                f"{place} has no every(…) or cron(…) schedule; the option variance applies only to those"
            )
        if options.start is not None:
            raise DefinitionError(
                f"{place} has no every(…) or cron(…) schedule; the option start applies only to those"
            )


def _encode_input(external_id: str, train: Train[Any, Any], value: Any, codec: Encoder) -> str:
    try:
        return codec.encode(value)
    except InvalidInput as error:
        subject = f"manifest {external_id!r}: train {train.name!r}: invalid input"
        raise InvalidInput(subject, error.errors) from None


def _schedule(occasion: Occasion, options: ScheduleOptions) -> Schedule | None:
    """The schedule; its own variance overrides the option."""
    if not isinstance(occasion, Interval | Cron):
        return None
    if options.variance is None or occasion.variance_seconds is not None:
        return occasion
    return replace(occasion, variance_seconds=variance_seconds(options.variance))


def _max_retries(train: Train[Any, Any], options: ScheduleOptions) -> int | None:
    """The manifest's options override the train's, and `max_retries` overrides `retry`."""
    for source in (options, train.options):
        if source.max_retries is not None:
            return source.max_retries
        if source.retry is not None:
            return source.retry.max_retries
    return None


def _retry(train: Train[Any, Any], options: ScheduleOptions) -> Retry | None:
    retry, max_retries = options.retry or train.options.retry, _max_retries(train, options)
    return replace(retry, max_retries=max_retries) if retry and max_retries is not None else retry
