"""Measurements of the engine beside its peers, on one machine and at equal durability.

Every engine and store is measured in a process of its own, so that its processor time and memory are
its own, and the processes of one round alternate, so that what else the machine does falls on all of
them alike. Only ratios within one run mean anything; `targets` says which of them are promised.

Three things make a measurement:

- A *program* (`programs/NAME.py`) is run as `python -m bench.programs.NAME '{"key": value}'`. It has
  a function `main` that takes those keys and returns a dict, or a list of them, that JSON can hold,
  and ends with ``if __name__ == "__main__": process.answer(main)``. It imports one engine and leaves
  nothing behind. The program of an engine for the workload W is called `ENGINE_w`.
- A *workload* (`workloads/NAME.py`) has a function `run(asked, stores, number)` that yields rows: it
  gives a program a fresh database (`stores`), calls it (`process.measure`) and makes a row of the
  answer (`rows.row`). `number` is the round, from 0; `asked` says which engines and stores are
  wanted and whether the run is a quick one. It is registered in the table of `workloads`.
- A *comparison* (`targets`) puts figures beside each other, and beside what is promised.

`python -m bench --only NAME --quick` tries a new one out.
"""
