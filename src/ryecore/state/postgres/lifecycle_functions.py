"""Stored functions of a thread's lifecycle: registered, begun and ended in one statement each.

They are the fast path, as those of `budget_functions` are, and lock rows in the same order. They
share the lock of the thread's tree, as turns do.

Source: docs/design/threads.md#registry; decisions 35 to 40 and 77; ADR 053.
"""

from typing import Final

__all__ = ["LIFECYCLE_FUNCTIONS"]

LIFECYCLE_FUNCTIONS: Final = """
CREATE FUNCTION register_thread(
    lock_group int, lock_id int, tree_group int, of_thread text, of_item text, of_parent text,
    of_model text, of_limits text, of_labels text, of_queue text,
    of_boot text, of_pid_namespace bigint, of_pid bigint, of_start bigint, of_time bigint,
    lease double precision, lease_machine double precision,
    OUT at text, OUT root text, OUT cancels boolean, OUT kills boolean, OUT all_labels text
) LANGUAGE plpgsql AS $$
BEGIN
    root := of_thread;
    cancels := FALSE;
    kills := FALSE;
    IF of_parent IS NULL THEN
        PERFORM pg_advisory_xact_lock_shared(lock_group, lock_id);
    ELSE
        PERFORM lock_tree(lock_group, lock_id, tree_group, of_parent, TRUE);
        SELECT root_id, cancel_requested, kill_requested, labels
            INTO root, cancels, kills, all_labels FROM threads WHERE thread_id = of_parent;
        IF NOT FOUND OR all_labels <> of_labels THEN
            RETURN;
        END IF;
    END IF;
    all_labels := coalesce(all_labels, of_labels);
    at := to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"');
    INSERT INTO threads (thread_id, item_id, parent_id, root_id, model, limits,
        cancel_requested, kill_requested, labels, queue, created_at, updated_at,
        boot_id, pid_namespace, pid, start_ticks, time_namespace, lease_until, lease_machine_s)
        VALUES (of_thread, of_item, of_parent, root, of_model, of_limits,
        cancels, kills, all_labels, of_queue, at, at,
        of_boot, of_pid_namespace, of_pid, of_start, of_time, lease, lease_machine)
        ON CONFLICT (thread_id) DO NOTHING;
    IF NOT FOUND THEN
        at := NULL;
    END IF;
END $$;
CREATE FUNCTION begin_thread(
    of_thread text, parent text, spend bigint, tokens bigint,
    of_boot text, of_pid_namespace bigint, of_pid bigint, of_start bigint, of_time bigint,
    lease double precision, lease_machine double precision,
    is_own_process boolean, of_limits text, of_model text, of_token text
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF parent IS NOT NULL THEN
        PERFORM FROM accounts WHERE thread_id = parent
            AND state = 'open' AND NOT stopped AND reserves_spend AND reserves_tokens
            AND spend_own + spend_children + spend_held + spend_reserved + spend
                <= spend_ceiling
            AND tokens_own + tokens_children + tokens_held + tokens_reserved + tokens
                <= tokens_ceiling;
        IF NOT FOUND THEN
            RETURN FALSE;
        END IF;
    END IF;
    UPDATE threads SET boot_id = of_boot, pid_namespace = of_pid_namespace, pid = of_pid,
        start_ticks = of_start, time_namespace = of_time, lease_until = lease,
        lease_machine_s = lease_machine, owns_process = is_own_process,
        limits = coalesce(of_limits, limits), model = coalesce(of_model, model),
        status = 'running', fence = 1, parent_token_hash = NULL,
        updated_at = to_char(statement_timestamp() AT TIME ZONE 'UTC',
            'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')
        WHERE thread_id = of_thread AND status = 'created' AND fence = 0
        AND (parent_token_hash IS NULL OR parent_token_hash = of_token);
    IF NOT FOUND THEN
        RETURN FALSE;
    END IF;
    INSERT INTO accounts (thread_id, parent_id, reserves_spend, reserves_tokens,
        spend_ceiling, tokens_ceiling) VALUES (of_thread, parent, TRUE, TRUE, spend, tokens)
        ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the thread has an account already' USING ERRCODE = 'RY001';
    END IF;
    IF parent IS NOT NULL THEN
        UPDATE accounts SET spend_reserved = spend_reserved + spend,
            tokens_reserved = tokens_reserved + tokens
            WHERE accounts.thread_id = parent
            AND state = 'open' AND NOT stopped AND reserves_spend AND reserves_tokens
            AND spend_own + spend_children + spend_held + spend_reserved + spend
                <= spend_ceiling
            AND tokens_own + tokens_children + tokens_held + tokens_reserved + tokens
                <= tokens_ceiling;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'another thread has reserved what was left' USING ERRCODE = 'RY001';
        END IF;
    END IF;
    RETURN TRUE;
END $$;
CREATE FUNCTION end_thread(
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
            RAISE EXCEPTION 'the request was settled, or cost more than was held'
                USING ERRCODE = 'RY001';
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
        RAISE EXCEPTION 'the account has ended, or has other holds or reservations'
            USING ERRCODE = 'RY001';
    END IF;
    IF settled_turn IS NOT NULL THEN
        UPDATE charges SET spend = spent, tokens = used, mark = settled_mark
            WHERE charges.thread_id = of_thread
            AND turn = settled_turn AND attempt = settled_attempt AND mark = 'held'
            AND held_spend = freed_spend AND held_tokens = freed_tokens;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'the request was settled meanwhile' USING ERRCODE = 'RY001';
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
        RAISE EXCEPTION 'the thread has ended, or was asked to stop' USING ERRCODE = 'RY001';
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
            RAISE EXCEPTION 'the account of the parent has ended, or reserves nothing'
                USING ERRCODE = 'RY001';
        END IF;
    END IF;
    IF settled_turn IS NOT NULL AND NOT (own.reserves_spend AND own.reserves_tokens) THEN
        PERFORM charge_ancestors(own.parent_id, NOT own.reserves_spend, NOT own.reserves_tokens,
            -freed_spend, -freed_tokens, spent, used, FALSE, FALSE);
    END IF;
    RETURN TRUE;
END $$;
CREATE FUNCTION open_log(
    of_thread text, size bigint, of_boot text, of_pid_namespace bigint, of_pid bigint,
    of_start bigint, of_time bigint, lease double precision, file text, lines text
) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO logs (thread_id, length, boot_id, pid_namespace, pid, start_ticks,
        time_namespace, lease_until, owner_fence)
        SELECT it.thread_id, size, of_boot, of_pid_namespace, of_pid, of_start, of_time, lease,
        it.fence FROM threads AS it
        WHERE it.thread_id = of_thread AND it.completed_at IS NULL ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN FALSE;
    END IF;
    INSERT INTO thread_files (thread_id, body) VALUES (of_thread, file)
        ON CONFLICT (thread_id) DO UPDATE SET body = excluded.body;
    INSERT INTO records (thread_id, start, body) VALUES (of_thread, 0, lines);
    RETURN TRUE;
END $$;
"""
"""Registers a thread; opens its account and claims its row; ends it; opens its log."""
