"""How data enters and leaves: one cattrs converter for each format.

| Format | Module | Holds |
| --- | --- | --- |
| wire | `wire` | Events, outcomes, costs and reports, with the keys of the documents. |
| records | `records` | Transcripts and journals. |
| configuration | `config` | What people write in YAML. |

A class says in its fields (`fields`) how it is written. `strict` makes the converters, and imports
cattrs (12 ms of CPU) when the first value is converted, not before.
"""
