"""How data enters and leaves: one cattrs converter for each format.

| Format | Name | Holds |
| --- | --- | --- |
| wire | `strict.WIRE` | Events, outcomes, costs and reports, with the keys of the documents. |
| records | `strict.RECORDS` | Transcripts and journals. |
| configuration | `config.CONFIG` | What people write in YAML. |

A class says in its fields (`fields`) how it is written. cattrs is imported (12 ms of CPU) when the
first value is converted, not before.
"""
