"""Functions of the server for threads that share the budget of the account above.

What such a thread holds and spends is charged to each account above it, up to the nearest open one
that reserves. They replace those of the same names that knew only accounts which reserve all: see
`whole_threads`, whose rules they keep. The accounts above are charged last, from the bottom up.

Source: docs/design/threads.md#budget; decisions 39, 40 and 77; ADR 053.
"""

from typing import Final

__all__ = ["SHARED_BUDGETS"]

SHARED_BUDGETS: Final = """
CREATE FUNCTION charge_above(
    above text, on_spend boolean, on_tokens boolean, more_spend bigint, more_tokens bigint,
    spent bigint, used bigint, holds_spend boolean, holds_tokens boolean
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    next_above text;
    ends_spend boolean;
    ends_tokens boolean;
BEGIN
    WHILE above IS NOT NULL AND (on_spend OR on_tokens) LOOP
        UPDATE accounts SET
            spend_held = spend_held + CASE WHEN on_spend THEN more_spend ELSE 0 END,
            spend_children = spend_children + CASE WHEN on_spend THEN spent ELSE 0 END,
            tokens_held = tokens_held + CASE WHEN on_tokens THEN more_tokens ELSE 0 END,
            tokens_children = tokens_children + CASE WHEN on_tokens THEN used ELSE 0 END
            WHERE accounts.thread_id = above
            AND (NOT (on_spend AND holds_spend) OR spend_own + spend_children + spend_held
                + spend_reserved + more_spend + spent <= spend_ceiling)
            AND (NOT (on_tokens AND holds_tokens) OR tokens_own + tokens_children + tokens_held
                + tokens_reserved + more_tokens + used <= tokens_ceiling)
            RETURNING parent_id, state = 'open' AND reserves_spend,
                state = 'open' AND reserves_tokens INTO next_above, ends_spend, ends_tokens;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'less is left above' USING ERRCODE = 'RY001';
        END IF;
        above := next_above;
        on_spend := on_spend AND NOT ends_spend;
        on_tokens := on_tokens AND NOT ends_tokens;
    END LOOP;
END $$;
CREATE OR REPLACE FUNCTION hold_alone(
    of_thread text, held_turn bigint, held_attempt bigint, more_spend bigint,
    more_tokens bigint, lease double precision, lease_machine double precision,
    head_length bigint, head_digest text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    above text;
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
            INTO above, on_spend, on_tokens;
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
        PERFORM charge_above(above, on_spend, on_tokens, more_spend, more_tokens, 0, 0,
            more_spend > 0, more_tokens > 0);
    END IF;
    RETURN TRUE;
END $$;
CREATE OR REPLACE FUNCTION settle_alone(
    of_thread text, settled_turn bigint, settled_attempt bigint, settled_mark text,
    spent bigint, used bigint, lease double precision, lease_machine double precision,
    cost bigint[], is_estimated boolean
) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    freed_spend bigint;
    freed_tokens bigint;
    above text;
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
            INTO above, on_spend, on_tokens;
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
        PERFORM charge_above(above, on_spend, on_tokens, -freed_spend, -freed_tokens, spent, used,
            FALSE, FALSE);
    END IF;
    RETURN requests;
END $$;
CREATE OR REPLACE FUNCTION exchange_hold(
    lock_group int, lock_id int, of_thread text,
    settled_turn bigint, settled_attempt bigint, settled_mark text,
    freed_spend bigint, freed_tokens bigint, spent bigint, used bigint,
    held_turn bigint, held_attempt bigint, more_spend bigint, more_tokens bigint,
    lease double precision, lease_machine double precision,
    cost bigint[], is_estimated boolean, head_length bigint, head_digest text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    above text;
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
            INTO above, on_spend, on_tokens;
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
        PERFORM charge_above(above, on_spend, on_tokens, more_spend - freed_spend,
            more_tokens - freed_tokens, spent, used, more_spend > 0, more_tokens > 0);
    END IF;
    RETURN TRUE;
END $$;
CREATE OR REPLACE FUNCTION end_alone(
    of_thread text, of_fence bigint, of_status text, result text,
    head_length bigint, head_digest text, cost bigint[], is_estimated boolean,
    settled_turn bigint, settled_attempt bigint, settled_mark text,
    spent bigint, used bigint, file text
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    own accounts;
    freed_spend bigint := 0;
    freed_tokens bigint := 0;
BEGIN
    IF settled_turn IS NOT NULL THEN
        SELECT held_spend, held_tokens INTO freed_spend, freed_tokens FROM charges
            WHERE charges.thread_id = of_thread
            AND turn = settled_turn AND attempt = settled_attempt AND mark = 'held'
            AND held_spend >= spent AND held_tokens >= used;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'not the usual request' USING ERRCODE = 'RY001';
        END IF;
    END IF;
    UPDATE accounts SET state = of_status,
        spend_held = 0, spend_own = spend_own + spent,
        spend_cascaded = spend_own + spent + spend_children,
        tokens_held = 0, tokens_own = tokens_own + used,
        tokens_cascaded = tokens_own + used + tokens_children
        WHERE accounts.thread_id = of_thread
        AND state = 'open' AND NOT stopped
        AND spend_held = freed_spend AND spend_reserved = 0 AND spend_cascaded = 0
        AND tokens_held = freed_tokens AND tokens_reserved = 0 AND tokens_cascaded = 0
        RETURNING * INTO own;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'not the usual account' USING ERRCODE = 'RY001';
    END IF;
    IF settled_turn IS NOT NULL THEN
        UPDATE charges SET spend = spent, tokens = used, mark = settled_mark
            WHERE charges.thread_id = of_thread
            AND turn = settled_turn AND attempt = settled_attempt AND mark = 'held'
            AND held_spend = freed_spend AND held_tokens = freed_tokens;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'it was settled before' USING ERRCODE = 'RY001';
        END IF;
    END IF;
    PERFORM FROM charges WHERE charges.thread_id = of_thread AND mark = 'held';
    IF FOUND THEN
        RAISE EXCEPTION 'another request is held' USING ERRCODE = 'RY001';
    END IF;
    UPDATE threads SET status = of_status, fence = fence + 1,
        updated_at = to_char(statement_timestamp() AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        completed_at = to_char(statement_timestamp() AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'),
        transcript_length = coalesce(head_length, transcript_length),
        transcript_digest = coalesce(head_digest, transcript_digest),
        turns = coalesce(cost[1], turns), input_tokens = coalesce(cost[2], input_tokens),
        output_tokens = coalesce(cost[3], output_tokens),
        spend_microcents = coalesce(cost[4], spend_microcents),
        cost_estimated = coalesce(is_estimated, cost_estimated),
        cached_tokens = coalesce(cost[5], cached_tokens),
        unpriced = coalesce(cost[6], unpriced),
        cache_saved_microcents = coalesce(cost[7], cache_saved_microcents)
        WHERE threads.thread_id = of_thread AND fence = of_fence AND completed_at IS NULL
        AND NOT (cancel_requested OR kill_requested OR handoff_requested);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'not the usual row' USING ERRCODE = 'RY001';
    END IF;
    INSERT INTO results (thread_id, body) VALUES (of_thread, result)
        ON CONFLICT (thread_id) DO UPDATE SET body = excluded.body;
    IF file IS NOT NULL THEN
        UPDATE thread_files SET body = file WHERE thread_files.thread_id = of_thread;
    END IF;
    IF own.parent_id IS NOT NULL AND (own.reserves_spend OR own.reserves_tokens) THEN
        UPDATE accounts SET
            spend_children = spend_children
                + CASE WHEN own.reserves_spend THEN own.spend_cascaded ELSE 0 END,
            spend_reserved = spend_reserved
                - CASE WHEN own.reserves_spend THEN own.spend_ceiling ELSE 0 END,
            tokens_children = tokens_children
                + CASE WHEN own.reserves_tokens THEN own.tokens_cascaded ELSE 0 END,
            tokens_reserved = tokens_reserved
                - CASE WHEN own.reserves_tokens THEN own.tokens_ceiling ELSE 0 END
            WHERE accounts.thread_id = own.parent_id AND state = 'open'
            AND (reserves_spend OR NOT own.reserves_spend)
            AND (reserves_tokens OR NOT own.reserves_tokens);
        IF NOT FOUND THEN
            RAISE EXCEPTION 'not the usual account above' USING ERRCODE = 'RY001';
        END IF;
    END IF;
    IF settled_turn IS NOT NULL AND NOT (own.reserves_spend AND own.reserves_tokens) THEN
        PERFORM charge_above(own.parent_id, NOT own.reserves_spend, NOT own.reserves_tokens,
            -freed_spend, -freed_tokens, spent, used, FALSE, FALSE);
    END IF;
    RETURN TRUE;
END $$;
"""
"""Charges the accounts above; holds, settles, and does both at once; ends a thread."""
