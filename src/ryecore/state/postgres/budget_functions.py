"""Stored functions of the budget ledger: a request is held, settled or exchanged by one statement.

They are the fast path: a function does all of its work where nothing stands against it, and nothing
in any other case. Then it returns FALSE or NULL, or raises `FAST_PATH_MISS`, which undoes its
transaction, and the rules that both databases share decide, statement by statement.

A function locks the rows of its own thread first, then those of its ancestors from the bottom up,
so that no two wait for each other. The accounts of ancestors, up to the nearest open one that
reserves, are charged last, so that their rows are locked for the commit alone.

Processes of an earlier version call hold_alone, settle_alone and exchange_hold, which stay as they
are until none is left.

Source: docs/design/threads.md#budget; decisions 39, 40 and 77; ADR 053.
"""

from typing import Final

__all__ = ["BUDGET_FUNCTIONS", "FAST_PATH_MISS"]

FAST_PATH_MISS: Final = "RY001"
"""The code of the error (SQLSTATE) by which a stored function leaves the fast path."""

BUDGET_FUNCTIONS: Final = """
ALTER TABLE accounts
    DROP CONSTRAINT accounts_spend_ceiling_check, DROP CONSTRAINT accounts_spend_own_check,
    DROP CONSTRAINT accounts_spend_children_check, DROP CONSTRAINT accounts_spend_held_check,
    DROP CONSTRAINT accounts_spend_reserved_check, DROP CONSTRAINT accounts_spend_cascaded_check,
    DROP CONSTRAINT accounts_tokens_ceiling_check, DROP CONSTRAINT accounts_tokens_own_check,
    DROP CONSTRAINT accounts_tokens_children_check, DROP CONSTRAINT accounts_tokens_held_check,
    DROP CONSTRAINT accounts_tokens_reserved_check, DROP CONSTRAINT accounts_tokens_cascaded_check,
    ADD CONSTRAINT accounts_amounts_check CHECK (least(
        spend_ceiling, spend_own, spend_children, spend_held, spend_reserved, spend_cascaded,
        tokens_ceiling, tokens_own, tokens_children, tokens_held, tokens_reserved, tokens_cascaded
    ) >= 0);
ALTER TABLE charges
    DROP CONSTRAINT charges_held_spend_check, DROP CONSTRAINT charges_held_tokens_check,
    DROP CONSTRAINT charges_spend_check, DROP CONSTRAINT charges_tokens_check,
    DROP CONSTRAINT charges_mark_check,
    ADD CONSTRAINT charges_amounts_and_mark_check
        CHECK (least(held_spend, held_tokens, spend, tokens) >= 0
        AND mark IN ('held', 'counted', 'estimated', 'assumed', 'freed'));
CREATE FUNCTION charge_ancestors(
    ancestor text, on_spend boolean, on_tokens boolean, more_spend bigint, more_tokens bigint,
    spent bigint, used bigint, holds_spend boolean, holds_tokens boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    next_ancestor text;
    ends_spend boolean;
    ends_tokens boolean;
BEGIN
    WHILE ancestor IS NOT NULL AND (on_spend OR on_tokens) LOOP
        UPDATE accounts SET
            spend_held = spend_held + CASE WHEN on_spend THEN more_spend ELSE 0 END,
            spend_children = spend_children + CASE WHEN on_spend THEN spent ELSE 0 END,
            tokens_held = tokens_held + CASE WHEN on_tokens THEN more_tokens ELSE 0 END,
            tokens_children = tokens_children + CASE WHEN on_tokens THEN used ELSE 0 END
            WHERE accounts.thread_id = ancestor
            AND (NOT (on_spend AND holds_spend) OR spend_own + spend_children + spend_held
                + spend_reserved + more_spend + spent <= spend_ceiling)
            AND (NOT (on_tokens AND holds_tokens) OR tokens_own + tokens_children + tokens_held
                + tokens_reserved + more_tokens + used <= tokens_ceiling)
            RETURNING parent_id, state = 'open' AND reserves_spend,
                state = 'open' AND reserves_tokens INTO next_ancestor, ends_spend, ends_tokens;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'an ancestor has too little left' USING ERRCODE = 'RY001';
        END IF;
        ancestor := next_ancestor;
        on_spend := on_spend AND NOT ends_spend;
        on_tokens := on_tokens AND NOT ends_tokens;
    END LOOP;
END $$;
CREATE FUNCTION hold_request(
    of_thread text, held_turn bigint, held_attempt bigint, more_spend bigint,
    more_tokens bigint, lease double precision, lease_machine double precision,
    head_length bigint, head_digest text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    ancestor text;
    on_spend boolean;
    on_tokens boolean;
BEGIN
    UPDATE accounts SET
        spend_held = spend_held + more_spend, tokens_held = tokens_held + more_tokens
        WHERE accounts.thread_id = of_thread AND state = 'open' AND NOT stopped
        AND spend_own + spend_children + spend_held + spend_reserved + more_spend <= spend_ceiling
        AND tokens_own + tokens_children + tokens_held + tokens_reserved + more_tokens
            <= tokens_ceiling
        RETURNING parent_id, NOT reserves_spend, NOT reserves_tokens
            INTO ancestor, on_spend, on_tokens;
    IF NOT FOUND THEN
        RETURN FALSE;
    END IF;
    INSERT INTO charges (thread_id, turn, attempt, held_spend, held_tokens)
        VALUES (of_thread, held_turn, held_attempt, more_spend, more_tokens)
        ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN -- this try has a charge
        UPDATE accounts SET
            spend_held = spend_held - more_spend, tokens_held = tokens_held - more_tokens
            WHERE accounts.thread_id = of_thread;
        RETURN FALSE;
    END IF;
    UPDATE threads SET lease_until = lease, lease_machine_s = lease_machine,
        transcript_length = coalesce(head_length, transcript_length),
        transcript_digest = coalesce(head_digest, transcript_digest)
        WHERE thread_id = of_thread;
    IF on_spend OR on_tokens THEN
        PERFORM charge_ancestors(ancestor, on_spend, on_tokens, more_spend, more_tokens, 0, 0,
            more_spend > 0, more_tokens > 0);
    END IF;
    RETURN TRUE;
END $$;
CREATE FUNCTION settle_request(
    of_thread text, settled_turn bigint, settled_attempt bigint, settled_mark text,
    spent bigint, used bigint, lease double precision, lease_machine double precision,
    cost bigint[], is_estimated boolean
) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    freed_spend bigint;
    freed_tokens bigint;
    ancestor text;
    on_spend boolean;
    on_tokens boolean;
    requests int;
BEGIN
    UPDATE charges SET spend = spent, tokens = used, mark = settled_mark
        WHERE charges.thread_id = of_thread
        AND turn = settled_turn AND attempt = settled_attempt AND mark = 'held'
        AND held_spend >= spent AND held_tokens >= used
        AND EXISTS (SELECT FROM accounts AS one WHERE one.thread_id = of_thread
            AND state = 'open' AND NOT stopped)
        RETURNING held_spend, held_tokens INTO freed_spend, freed_tokens;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    UPDATE accounts SET
        spend_held = spend_held - freed_spend, spend_own = spend_own + spent,
        tokens_held = tokens_held - freed_tokens, tokens_own = tokens_own + used
        WHERE accounts.thread_id = of_thread
        RETURNING parent_id, NOT reserves_spend, NOT reserves_tokens
            INTO ancestor, on_spend, on_tokens;
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
    IF on_spend OR on_tokens THEN
        PERFORM charge_ancestors(ancestor, on_spend, on_tokens, -freed_spend, -freed_tokens,
            spent, used, FALSE, FALSE);
    END IF;
    RETURN requests;
END $$;
CREATE FUNCTION exchange_requests(
    lock_group int, lock_id int, of_thread text,
    settled_turn bigint, settled_attempt bigint, settled_mark text,
    freed_spend bigint, freed_tokens bigint, spent bigint, used bigint,
    held_turn bigint, held_attempt bigint, more_spend bigint, more_tokens bigint,
    lease double precision, lease_machine double precision,
    cost bigint[], is_estimated boolean, head_length bigint, head_digest text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    ancestor text;
    on_spend boolean;
    on_tokens boolean;
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
        WHERE accounts.thread_id = of_thread AND state = 'open' AND NOT stopped
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
            AND NOT (it.cancel_requested OR it.kill_requested OR it.handoff_requested))
        RETURNING parent_id, NOT reserves_spend, NOT reserves_tokens
            INTO ancestor, on_spend, on_tokens;
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
    IF on_spend OR on_tokens THEN
        PERFORM charge_ancestors(ancestor, on_spend, on_tokens, more_spend - freed_spend,
            more_tokens - freed_tokens, spent, used, more_spend > 0, more_tokens > 0);
    END IF;
    RETURN TRUE;
END $$;
"""
"""Charges ancestors; holds a request, settles it, and exchanges one for the next."""
