"""The schema on the server, version by version.

Its tables and columns are those of `threads.db`, so that the same statements fit both; `rowid`
keeps the order in which rows were made.

Source: decisions 35 to 40, 77 and 81.
"""

from collections.abc import Sequence
from typing import Final

from ryecore.state.postgres.budget_functions import BUDGET_FUNCTIONS
from ryecore.state.postgres.lifecycle_functions import LIFECYCLE_FUNCTIONS

__all__ = ["MIGRATIONS"]

MIGRATIONS: Final[Sequence[str]] = (
    """
    CREATE TABLE threads (
        thread_id text PRIMARY KEY,
        rowid bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
        item_id text NOT NULL,
        parent_id text,
        root_id text NOT NULL,
        status text NOT NULL DEFAULT 'created',
        created_at text NOT NULL,
        updated_at text NOT NULL,
        completed_at text,
        boot_id text, pid_namespace bigint, pid bigint, start_ticks bigint,
        time_namespace bigint NOT NULL DEFAULT 0,
        owns_process boolean NOT NULL DEFAULT FALSE,
        fence bigint NOT NULL DEFAULT 0,
        lease_until double precision NOT NULL DEFAULT 0,
        lease_machine_s double precision NOT NULL DEFAULT 0,
        parent_token_hash text,
        cancel_requested boolean NOT NULL DEFAULT FALSE,
        kill_requested boolean NOT NULL DEFAULT FALSE,
        handoff_requested boolean NOT NULL DEFAULT FALSE,
        model text,
        limits text,
        labels text,
        turns bigint NOT NULL DEFAULT 0,
        input_tokens bigint NOT NULL DEFAULT 0,
        output_tokens bigint NOT NULL DEFAULT 0,
        spend_microcents bigint NOT NULL DEFAULT 0,
        cost_estimated boolean NOT NULL DEFAULT FALSE,
        cached_tokens bigint NOT NULL DEFAULT 0,
        unpriced bigint NOT NULL DEFAULT 0,
        cache_saved_microcents bigint NOT NULL DEFAULT 0,
        spawn_count bigint NOT NULL DEFAULT 0,
        continuation_of text,
        continuation_thread_id text,
        chain_root_id text,
        start_scope text, start_key text, start_digest text,
        transcript_length bigint NOT NULL DEFAULT 0,
        transcript_digest text,
        remote text, node text
    );
    CREATE INDEX threads_by_id ON threads (thread_id COLLATE "C");
    CREATE INDEX threads_active ON threads (rowid) WHERE completed_at IS NULL;
    CREATE INDEX threads_by_parent ON threads (parent_id) WHERE parent_id IS NOT NULL;
    CREATE INDEX threads_by_continuation ON threads (continuation_of)
        WHERE continuation_of IS NOT NULL;
    CREATE UNIQUE INDEX threads_by_start_key ON threads (start_scope, start_key)
        WHERE start_key IS NOT NULL;
    CREATE TABLE results (
        thread_id text PRIMARY KEY REFERENCES threads (thread_id) ON DELETE CASCADE,
        body text NOT NULL
    );
    CREATE INDEX results_of_dead ON results (thread_id) WHERE strpos(body, '"died": true') > 0;
    CREATE TABLE accounts (
        thread_id text PRIMARY KEY REFERENCES threads (thread_id) ON DELETE CASCADE,
        parent_id text REFERENCES accounts (thread_id),
        state text NOT NULL DEFAULT 'open',
        stopped boolean NOT NULL DEFAULT FALSE,
        reserves_spend boolean NOT NULL,
        reserves_tokens boolean NOT NULL,
        spend_ceiling bigint NOT NULL CHECK (spend_ceiling >= 0),
        spend_own bigint NOT NULL DEFAULT 0 CHECK (spend_own >= 0),
        spend_children bigint NOT NULL DEFAULT 0 CHECK (spend_children >= 0),
        spend_held bigint NOT NULL DEFAULT 0 CHECK (spend_held >= 0),
        spend_reserved bigint NOT NULL DEFAULT 0 CHECK (spend_reserved >= 0),
        spend_cascaded bigint NOT NULL DEFAULT 0 CHECK (spend_cascaded >= 0),
        tokens_ceiling bigint NOT NULL CHECK (tokens_ceiling >= 0),
        tokens_own bigint NOT NULL DEFAULT 0 CHECK (tokens_own >= 0),
        tokens_children bigint NOT NULL DEFAULT 0 CHECK (tokens_children >= 0),
        tokens_held bigint NOT NULL DEFAULT 0 CHECK (tokens_held >= 0),
        tokens_reserved bigint NOT NULL DEFAULT 0 CHECK (tokens_reserved >= 0),
        tokens_cascaded bigint NOT NULL DEFAULT 0 CHECK (tokens_cascaded >= 0)
    );
    CREATE INDEX accounts_by_parent ON accounts (parent_id) WHERE parent_id IS NOT NULL;
    CREATE TABLE charges (
        thread_id text NOT NULL REFERENCES accounts (thread_id) ON DELETE CASCADE,
        turn bigint NOT NULL,
        attempt bigint NOT NULL,
        held_spend bigint NOT NULL CHECK (held_spend >= 0),
        held_tokens bigint NOT NULL CHECK (held_tokens >= 0),
        spend bigint NOT NULL DEFAULT 0 CHECK (spend >= 0),
        tokens bigint NOT NULL DEFAULT 0 CHECK (tokens >= 0),
        mark text NOT NULL DEFAULT 'held'
            CHECK (mark IN ('held', 'counted', 'estimated', 'assumed', 'freed')),
        PRIMARY KEY (thread_id, turn, attempt)
    );
    CREATE TABLE approvals (
        approval_id text PRIMARY KEY,
        rowid bigint GENERATED ALWAYS AS IDENTITY,
        thread_id text NOT NULL REFERENCES threads (thread_id) ON DELETE CASCADE,
        call_id text NOT NULL,
        tool_name text NOT NULL,
        arguments text NOT NULL,
        reason text NOT NULL,
        tool_digest text NOT NULL,
        call_digest text NOT NULL,
        requested_at text NOT NULL,
        approved boolean,
        answer_reason text NOT NULL DEFAULT '',
        answered_at text,
        used boolean NOT NULL DEFAULT FALSE
    );
    CREATE INDEX approvals_by_thread ON approvals (thread_id);
    CREATE TABLE pruned (thread_id text PRIMARY KEY);
    CREATE FUNCTION exchange_hold(
        lock_group int, lock_id int, of_thread text,
        settled_turn bigint, settled_attempt bigint, settled_mark text,
        freed_spend bigint, freed_tokens bigint, spent bigint, used bigint,
        held_turn bigint, held_attempt bigint, more_spend bigint, more_tokens bigint,
        lease double precision, lease_machine double precision,
        cost bigint[], is_estimated boolean, head_length bigint, head_digest text
    ) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(lock_group, lock_id);
        PERFORM FROM charges AS other WHERE other.thread_id = of_thread
            AND other.turn = held_turn AND other.attempt = held_attempt;
        IF FOUND OR spent > freed_spend OR used > freed_tokens THEN
            RETURN FALSE;
        END IF;
        UPDATE accounts SET
            spend_held = spend_held + more_spend - freed_spend, spend_own = spend_own + spent,
            tokens_held = tokens_held + more_tokens - freed_tokens, tokens_own = tokens_own + used
            WHERE accounts.thread_id = of_thread
            AND state = 'open' AND NOT stopped AND reserves_spend AND reserves_tokens
            AND spend_own + spend_children + spend_held + spend_reserved
                + more_spend + spent - freed_spend <= spend_ceiling
            AND tokens_own + tokens_children + tokens_held + tokens_reserved
                + more_tokens + used - freed_tokens <= tokens_ceiling
            AND EXISTS (SELECT FROM charges AS one WHERE one.thread_id = of_thread
                AND one.turn = settled_turn AND one.attempt = settled_attempt
                AND one.mark = 'held'
                AND one.held_spend = freed_spend AND one.held_tokens = freed_tokens)
            AND EXISTS (SELECT FROM threads AS it WHERE it.thread_id = of_thread
                AND it.completed_at IS NULL
                AND NOT (it.cancel_requested OR it.kill_requested OR it.handoff_requested));
        IF NOT FOUND THEN
            RETURN FALSE;
        END IF;
        UPDATE charges SET spend = spent, tokens = used, mark = settled_mark
            WHERE thread_id = of_thread
            AND turn = settled_turn AND attempt = settled_attempt;
        INSERT INTO charges (thread_id, turn, attempt, held_spend, held_tokens)
            VALUES (of_thread, held_turn, held_attempt, more_spend, more_tokens);
        UPDATE threads SET lease_until = lease, lease_machine_s = lease_machine,
            turns = cost[1], input_tokens = cost[2], output_tokens = cost[3],
            spend_microcents = cost[4], cost_estimated = is_estimated,
            cached_tokens = cost[5], unpriced = cost[6], cache_saved_microcents = cost[7],
            updated_at = to_char(statement_timestamp() AT TIME ZONE 'UTC',
                'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
            transcript_length = head_length, transcript_digest = head_digest
            WHERE thread_id = of_thread;
        RETURN TRUE;
    END $$;
    """,
    # Notices: the place that made the change, what it is, and the thread.
    """
    CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM pg_notify(TG_TABLE_SCHEMA, concat_ws(' ',
            coalesce(nullif(current_setting('ryecore.place', TRUE), ''), '-'),
            TG_ARGV[0], NEW.thread_id));
        RETURN NULL;
    END $$;
    CREATE TRIGGER tell_of_change AFTER UPDATE OF status ON threads
        FOR EACH ROW WHEN (OLD.status <> NEW.status) EXECUTE FUNCTION tell('changed');
    CREATE TRIGGER tell_of_request
        AFTER UPDATE OF cancel_requested, kill_requested, handoff_requested ON threads
        FOR EACH ROW WHEN (NEW.cancel_requested AND NOT OLD.cancel_requested
            OR NEW.kill_requested AND NOT OLD.kill_requested
            OR NEW.handoff_requested AND NOT OLD.handoff_requested)
        EXECUTE FUNCTION tell('requested');
    CREATE TRIGGER tell_of_answer AFTER UPDATE OF approved ON approvals
        FOR EACH ROW WHEN (OLD.approved IS DISTINCT FROM NEW.approved)
        EXECUTE FUNCTION tell('changed');
    """,
    # Runs that wait in a queue, and the workers of queues.
    """
    ALTER TABLE threads ADD COLUMN queue text;
    CREATE INDEX threads_queued ON threads (queue, rowid)
        WHERE queue IS NOT NULL AND completed_at IS NULL;
    CREATE TABLE requests (
        thread_id text PRIMARY KEY REFERENCES threads (thread_id) ON DELETE CASCADE,
        body text NOT NULL,
        priority bigint NOT NULL,
        deadline double precision,
        takeovers bigint NOT NULL DEFAULT 0
    );
    CREATE TABLE workers (
        worker_id text PRIMARY KEY,
        queue text NOT NULL,
        concurrency bigint NOT NULL,
        host text NOT NULL,
        project text NOT NULL,
        started_at text NOT NULL,
        boot_id text NOT NULL, pid_namespace bigint NOT NULL, pid bigint NOT NULL,
        start_ticks bigint NOT NULL, time_namespace bigint NOT NULL,
        lease_until double precision NOT NULL,
        lease_machine_s double precision NOT NULL
    );
    CREATE TRIGGER tell_of_continuation AFTER UPDATE OF continuation_thread_id ON threads
        FOR EACH ROW WHEN (NEW.queue IS NOT NULL
            AND OLD.continuation_thread_id IS DISTINCT FROM NEW.continuation_thread_id)
        EXECUTE FUNCTION tell('changed');
    """,
    # Transcripts: each log with its writer, its lines, a row for each write, and signed files.
    """
    CREATE TABLE logs (
        thread_id text PRIMARY KEY,
        length bigint NOT NULL DEFAULT 0,
        fence bigint NOT NULL DEFAULT 1,
        owner_fence bigint,
        boot_id text, pid_namespace bigint, pid bigint, start_ticks bigint,
        time_namespace bigint NOT NULL DEFAULT 0,
        lease_until double precision NOT NULL DEFAULT 0
    ) WITH (fillfactor = 50);
    CREATE TABLE records (
        thread_id text NOT NULL,
        start bigint NOT NULL,
        body text NOT NULL,
        PRIMARY KEY (thread_id, start)
    );
    CREATE TABLE thread_files (thread_id text PRIMARY KEY, body text NOT NULL);
    """,
    # Objects. A row of `objects` comes with all chunks of its content, in one transaction.
    """
    CREATE TABLE objects (
        space text COLLATE "C" NOT NULL,
        sha256 text COLLATE "C" NOT NULL,
        content_id bigint NOT NULL,
        size_bytes bigint NOT NULL CHECK (size_bytes >= 0),
        stored_at timestamptz NOT NULL DEFAULT clock_timestamp(),
        PRIMARY KEY (space, sha256)
    );
    CREATE TABLE object_chunks (
        content_id bigint NOT NULL,
        number bigint NOT NULL,
        chunk bytea NOT NULL,
        PRIMARY KEY (content_id, number)
    );
    ALTER TABLE object_chunks ALTER COLUMN chunk SET STORAGE EXTERNAL;
    CREATE SEQUENCE object_contents;
    """,
    # A lock for each tree of threads, beside the lock of the schema. Threads that hand their work
    # on share one.
    """
    CREATE FUNCTION lock_tree(
        lock_group int, lock_id int, tree_group int, of_thread text, is_shared boolean
    ) RETURNS boolean LANGUAGE plpgsql AS $$
    DECLARE
        tree int;
    BEGIN
        PERFORM pg_advisory_xact_lock_shared(lock_group, lock_id);
        SELECT hashtext(coalesce(root.chain_root_id, it.root_id)) INTO tree
            FROM threads AS it LEFT JOIN threads AS root ON root.thread_id = it.root_id
            WHERE it.thread_id = of_thread;
        IF tree IS NULL THEN
            NULL;
        ELSIF is_shared THEN
            PERFORM pg_advisory_xact_lock_shared(tree_group, tree);
        ELSE
            PERFORM pg_advisory_xact_lock(tree_group, tree);
        END IF;
        RETURN TRUE;
    END $$;
    """,
    # The usual cases of a hold and of a settlement: the account reserves all that it spends, so
    # that it is charged alone. In any other case nothing is changed.
    """
    CREATE FUNCTION hold_alone(
        of_thread text, held_turn bigint, held_attempt bigint, more_spend bigint,
        more_tokens bigint, lease double precision, lease_machine double precision,
        head_length bigint, head_digest text
    ) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE accounts SET
            spend_held = spend_held + more_spend, tokens_held = tokens_held + more_tokens
            WHERE accounts.thread_id = of_thread
            AND state = 'open' AND NOT stopped AND reserves_spend AND reserves_tokens
            AND spend_own + spend_children + spend_held + spend_reserved + more_spend
                <= spend_ceiling
            AND tokens_own + tokens_children + tokens_held + tokens_reserved + more_tokens
                <= tokens_ceiling
            AND NOT EXISTS (SELECT FROM charges AS other WHERE other.thread_id = of_thread
                AND other.turn = held_turn AND other.attempt = held_attempt);
        IF NOT FOUND THEN
            RETURN FALSE;
        END IF;
        INSERT INTO charges (thread_id, turn, attempt, held_spend, held_tokens)
            VALUES (of_thread, held_turn, held_attempt, more_spend, more_tokens)
            ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN -- the same hold was placed meanwhile
            UPDATE accounts SET
                spend_held = spend_held - more_spend, tokens_held = tokens_held - more_tokens
                WHERE accounts.thread_id = of_thread;
            RETURN FALSE;
        END IF;
        UPDATE threads SET lease_until = lease, lease_machine_s = lease_machine,
            transcript_length = coalesce(head_length, transcript_length),
            transcript_digest = coalesce(head_digest, transcript_digest)
            WHERE thread_id = of_thread;
        RETURN TRUE;
    END $$;
    CREATE FUNCTION settle_alone(
        of_thread text, settled_turn bigint, settled_attempt bigint, settled_mark text,
        spent bigint, used bigint, lease double precision, lease_machine double precision,
        cost bigint[], is_estimated boolean
    ) RETURNS int LANGUAGE plpgsql AS $$
    DECLARE
        freed_spend bigint;
        freed_tokens bigint;
        requests int;
    BEGIN
        UPDATE charges SET spend = spent, tokens = used, mark = settled_mark
            WHERE charges.thread_id = of_thread
            AND turn = settled_turn AND attempt = settled_attempt AND mark = 'held'
            AND held_spend >= spent AND held_tokens >= used
            AND EXISTS (SELECT FROM accounts AS one WHERE one.thread_id = of_thread
                AND state = 'open' AND NOT stopped AND reserves_spend AND reserves_tokens)
            RETURNING held_spend, held_tokens INTO freed_spend, freed_tokens;
        IF NOT FOUND THEN
            RETURN NULL;
        END IF;
        UPDATE accounts SET
            spend_held = spend_held - freed_spend, spend_own = spend_own + spent,
            tokens_held = tokens_held - freed_tokens, tokens_own = tokens_own + used
            WHERE accounts.thread_id = of_thread;
        IF cost IS NOT NULL THEN
            UPDATE threads SET lease_until = lease, lease_machine_s = lease_machine,
                turns = cost[1], input_tokens = cost[2], output_tokens = cost[3],
                spend_microcents = cost[4], cost_estimated = is_estimated,
                cached_tokens = cost[5], unpriced = cost[6], cache_saved_microcents = cost[7],
                updated_at = to_char(statement_timestamp() AT TIME ZONE 'UTC',
                    'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
                WHERE thread_id = of_thread AND completed_at IS NULL;
        END IF;
        SELECT CAST(cancel_requested OR kill_requested OR completed_at IS NOT NULL AS int)
            + 2 * CAST(handoff_requested AS int) INTO requests
            FROM threads WHERE thread_id = of_thread;
        RETURN requests;
    END $$;
    """,
    # What one write adds to a log, if its writer still owns it and knows its length. As a function
    # it can come before rows in one statement, and reads what was committed until then.
    """
    CREATE FUNCTION append_records(
        of_thread text, of_fence bigint, from_length bigint, size bigint, lines text,
        lease double precision, closes boolean
    ) RETURNS boolean LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE logs SET length = length + size, lease_until = lease,
            pid = CASE WHEN closes THEN NULL ELSE pid END
            WHERE logs.thread_id = of_thread AND fence = of_fence AND length = from_length
            AND (owner_fence IS NULL OR EXISTS (SELECT FROM threads AS it
                WHERE it.thread_id = of_thread AND it.fence = owner_fence));
        IF NOT FOUND THEN
            RETURN FALSE;
        END IF;
        INSERT INTO records (thread_id, start, body) VALUES (of_thread, from_length, lines);
        RETURN TRUE;
    END $$;
    """,
    # What a worker tells the node that has put a run into a queue.
    """
    ALTER TABLE requests ADD COLUMN outcome text;
    CREATE TRIGGER tell_of_outcome AFTER UPDATE OF outcome ON requests
        FOR EACH ROW EXECUTE FUNCTION tell('changed');
    """,
    BUDGET_FUNCTIONS,
    LIFECYCLE_FUNCTIONS,
    # The machine whose process runs a thread, or has run it: that of the connection that writes
    # the owner, so that no function needs it. A trigger that goes before would lock each row once
    # more whenever it is written; this one is called where another machine becomes the owner.
    """
    ALTER TABLE threads ADD COLUMN host text;
    ALTER TABLE threads ALTER COLUMN host
        SET DEFAULT nullif(current_setting('ryecore.host', TRUE), '');
    CREATE FUNCTION set_host() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        name text;
    BEGIN
        IF current_setting('ryecore.boot', TRUE) = NEW.boot_id THEN
            name := nullif(current_setting('ryecore.host', TRUE), '');
        END IF;
        UPDATE threads SET host = name
            WHERE thread_id = NEW.thread_id AND host IS DISTINCT FROM name;
        RETURN NULL;
    END $$;
    CREATE TRIGGER host_of_owner AFTER UPDATE OF boot_id ON threads
        FOR EACH ROW WHEN (NEW.boot_id IS NOT NULL AND (OLD.boot_id IS DISTINCT FROM NEW.boot_id
            OR OLD.pid_namespace IS DISTINCT FROM NEW.pid_namespace))
        EXECUTE FUNCTION set_host();
    """,
)
"""The statements that upgrade each version of the schema to the next."""
