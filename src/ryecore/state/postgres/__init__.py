"""The state of a project on a PostgreSQL server, which machines share. Needs psycopg."""
