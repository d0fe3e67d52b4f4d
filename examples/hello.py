"""The shortest train: one function, run here and now, recorded in trax.db."""

from trax import Trax

app = Trax()


@app.train
def greet(name: str) -> str:
    return f"Hello, {name}!"


if __name__ == "__main__":
    print(app.sync.run(greet, "Ada"))
