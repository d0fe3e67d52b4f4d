CREATE TABLE trax_audit (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    at VARCHAR(27) NOT NULL,
    actor TEXT NOT NULL,
    via TEXT NOT NULL,
    action TEXT NOT NULL,
    noun TEXT NOT NULL,
    ids TEXT NOT NULL,
    targets INTEGER NOT NULL,
    "before" TEXT,
    "after" TEXT,
    restores TEXT,
    expects TEXT,
    reason TEXT,
    undoes INTEGER,
    undone_by INTEGER,
    CONSTRAINT via_known CHECK (via IN ('dashboard', 'api', 'cli', 'python', 'system')),
    CONSTRAINT targets_range CHECK (targets >= 0)
);

CREATE TABLE trax_group_tally (
    group_id INTEGER NOT NULL,
    completed BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    cancelled BIGINT NOT NULL,
    seconds FLOAT NOT NULL,
    last_run_at VARCHAR(27) NOT NULL,
    PRIMARY KEY (group_id)
);

CREATE TABLE trax_log (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    metadata_id INTEGER,
    created_at VARCHAR(27) NOT NULL,
    level TEXT NOT NULL,
    logger TEXT NOT NULL,
    message TEXT NOT NULL,
    exception TEXT,
    stack_trace TEXT,
    CONSTRAINT level_known CHECK (level IN ('trace', 'debug', 'information', 'warning', 'error', 'critical'))
);

CREATE TABLE trax_manifest_group (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    priority SMALLINT DEFAULT '0' NOT NULL,
    max_active_jobs INTEGER,
    enabled BOOLEAN DEFAULT 1 NOT NULL,
    created_at VARCHAR(27) NOT NULL,
    updated_at VARCHAR(27) NOT NULL,
    priority_changed_at VARCHAR(27),
    apply_priority_at VARCHAR(27),
    priority_horizon INTEGER,
    declared TEXT,
    edited_at VARCHAR(27),
    ad_hoc BOOLEAN DEFAULT 0 NOT NULL,
    retired_at VARCHAR(27),
    CONSTRAINT priority_range CHECK (priority BETWEEN 0 AND 31),
    CONSTRAINT max_active_jobs_range CHECK (max_active_jobs >= 0),
    CONSTRAINT name_lengths CHECK (length(name) <= 200),
    CONSTRAINT priority_has_change CHECK (apply_priority_at IS NULL OR priority_changed_at IS NOT NULL),
    CONSTRAINT moment_ranges CHECK (created_at BETWEEN '1900-01-01T00:00:00.000000Z' AND '2999-12-31T23:59:59.999999Z' AND updated_at BETWEEN '1900-01-01T00:00:00.000000Z' AND '2999-12-31T23:59:59.999999Z' AND priority_changed_at BETWEEN '1900-01-01T00:00:00.000000Z' AND '2999-12-31T23:59:59.999999Z' AND apply_priority_at BETWEEN '1900-01-01T00:00:00.000000Z' AND '2999-12-31T23:59:59.999999Z' AND edited_at BETWEEN '1900-01-01T00:00:00.000000Z' AND '2999-12-31T23:59:59.999999Z' AND retired_at BETWEEN '1900-01-01T00:00:00.000000Z' AND '2999-12-31T23:59:59.999999Z'),
    UNIQUE (name)
);

CREATE TABLE trax_setting (
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    updated_at VARCHAR(27) NOT NULL,
    PRIMARY KEY (name)
);

CREATE TABLE trax_tally (
    span TEXT NOT NULL,
    at VARCHAR(27) NOT NULL,
    train TEXT NOT NULL,
    completed BIGINT NOT NULL,
    failed BIGINT NOT NULL,
    cancelled BIGINT NOT NULL,
    seconds FLOAT NOT NULL,
    PRIMARY KEY (span, at, train),
    CONSTRAINT span_known CHECK (span IN ('minute', 'hour'))
)
 WITHOUT ROWID;

CREATE TABLE trax_web_link (
    "key" TEXT NOT NULL,
    created_at VARCHAR(27) NOT NULL,
    expires_at VARCHAR(27) NOT NULL,
    PRIMARY KEY ("key")
);

CREATE TABLE trax_web_password (
    app TEXT NOT NULL,
    user TEXT NOT NULL,
    hash TEXT NOT NULL,
    proof TEXT NOT NULL,
    updated_at VARCHAR(27) NOT NULL,
    PRIMARY KEY (app, user)
);

CREATE TABLE trax_web_session (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    "key" TEXT NOT NULL,
    user TEXT NOT NULL,
    role TEXT NOT NULL,
    means TEXT NOT NULL,
    proof TEXT NOT NULL,
    address TEXT NOT NULL,
    user_agent TEXT NOT NULL,
    created_at VARCHAR(27) NOT NULL,
    last_seen_at VARCHAR(27) NOT NULL,
    expires_at VARCHAR(27) NOT NULL,
    CONSTRAINT means_known CHECK (means IN ('password', 'link'))
);

CREATE TABLE trax_work_queue (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    group_id INTEGER,
    manifest_id INTEGER,
    dead_letter_id INTEGER,
    created_at VARCHAR(27) NOT NULL,
    scheduled_at VARCHAR(27),
    scheduled_for VARCHAR(27),
    parked_at VARCHAR(27),
    timeout_seconds FLOAT,
    attempt INTEGER DEFAULT '1' NOT NULL,
    dispatch_attempts INTEGER DEFAULT '0' NOT NULL,
    priority SMALLINT DEFAULT '0' NOT NULL,
    group_priority SMALLINT DEFAULT '0' NOT NULL,
    ready BOOLEAN NOT NULL,
    external_id TEXT NOT NULL,
    train TEXT NOT NULL,
    input TEXT,
    origin TEXT NOT NULL,
    parked TEXT,
    unique_key TEXT,
    former_key TEXT,
    retry TEXT,
    status TEXT NOT NULL,
    metadata_id INTEGER,
    dispatched_at VARCHAR(27),
    CONSTRAINT status_known CHECK (status IN ('queued', 'dispatched', 'cancelled')),
    CONSTRAINT origin_known CHECK (origin IN ('schedule', 'retry', 'trigger', 'requeue', 'dormant', 'queue', 'rerun')),
    CONSTRAINT priority_range CHECK (priority BETWEEN 0 AND 31),
    CONSTRAINT group_priority_range CHECK (group_priority BETWEEN 0 AND 31),
    CONSTRAINT attempt_range CHECK (attempt >= 1),
    CONSTRAINT dispatch_attempts_range CHECK (dispatch_attempts >= 0),
    CONSTRAINT delayed_has_moment CHECK (ready OR scheduled_at IS NOT NULL OR parked IS NOT NULL),
    CONSTRAINT parked_is_not_ready CHECK (parked IS NULL OR NOT ready),
    CONSTRAINT parked_has_moment CHECK ((parked IS NULL) = (parked_at IS NULL)),
    CONSTRAINT dispatched_has_moment CHECK ((status = 'dispatched') = (dispatched_at IS NOT NULL)),
    CONSTRAINT name_lengths CHECK (length(train) <= 200 AND length(external_id) <= 200 AND length(unique_key) <= 200 AND length(former_key) <= 200),
    CONSTRAINT moment_ranges CHECK (created_at BETWEEN '1900-01-01T00:00:00.000000Z' AND '2999-12-31T23:59:59.999999Z' AND scheduled_at BETWEEN '1900-01-01T00:00:00.000000Z' AND '2999-12-31T23:59:59.999999Z' AND scheduled_for BETWEEN '1900-01-01T00:00:00.000000Z' AND '2999-12-31T23:59:59.999999Z' AND parked_at BETWEEN '1900-01-01T00:00:00.000000Z' AND '2999-12-31T23:59:59.999999Z' AND dispatched_at BETWEEN '1900-01-01T00:00:00.000000Z' AND '2999-12-31T23:59:59.999999Z'),
    CONSTRAINT timeout_seconds_range CHECK (timeout_seconds BETWEEN 0 AND 2144448000)
);

CREATE TABLE trax_worker (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    host TEXT NOT NULL,
    host_environment TEXT NOT NULL,
    host_instance_id TEXT NOT NULL,
    host_labels TEXT,
    pid INTEGER NOT NULL,
    version TEXT DEFAULT '' NOT NULL,
    app_version TEXT DEFAULT '' NOT NULL,
    app TEXT DEFAULT 'default' NOT NULL,
    declares TEXT,
    concurrency INTEGER NOT NULL,
    dispatches BOOLEAN DEFAULT 0 NOT NULL,
    kind TEXT DEFAULT 'worker' NOT NULL,
    trains TEXT NOT NULL,
    aliases TEXT,
    groups TEXT,
    routes TEXT,
    settings TEXT,
    failing_loops TEXT,
    plain_fields TEXT,
    started_at VARCHAR(27) NOT NULL,
    heartbeat_at VARCHAR(27) NOT NULL,
    CONSTRAINT kind_known CHECK (kind IN ('worker', 'receiver', 'scheduler', 'caller')),
    CONSTRAINT concurrency_range CHECK (concurrency >= 0)
);

CREATE TABLE trax_worker_identity (
    worker_id INTEGER NOT NULL,
    host_environment TEXT NOT NULL,
    host_instance_id TEXT NOT NULL,
    host_labels TEXT,
    last_run_id INTEGER,
    PRIMARY KEY (worker_id)
);

CREATE TABLE trax_manifest (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    external_id TEXT NOT NULL,
    train TEXT NOT NULL,
    input TEXT,
    group_id INTEGER NOT NULL,
    enabled BOOLEAN DEFAULT 1 NOT NULL,
    priority SMALLINT DEFAULT '0' NOT NULL,
    origin TEXT NOT NULL,
    batch TEXT,
    app TEXT DEFAULT 'default' NOT NULL,
    schedule_type TEXT NOT NULL,
    cron_expression TEXT,
    time_zone TEXT DEFAULT 'UTC' NOT NULL,
    interval_seconds INTEGER,
    anchored BOOLEAN DEFAULT 0 NOT NULL,
    scheduled_at VARCHAR(27),
    depends_on_id INTEGER,
    variance_seconds INTEGER,
    exclusions TEXT,
    misfire_policy TEXT NOT NULL,
    misfire_limit INTEGER,
    misfire_threshold_seconds INTEGER,
    max_instances INTEGER DEFAULT '1' NOT NULL,
    max_retries INTEGER NOT NULL,
    retry TEXT,
    timeout_seconds FLOAT,
    failure_count INTEGER DEFAULT '0' NOT NULL,
    lifetime_failures INTEGER DEFAULT '0' NOT NULL,
    gave_up_reason TEXT,
    failed_metadata_id INTEGER,
    retry_at VARCHAR(27),
    attempt_cancelled BOOLEAN DEFAULT 0 NOT NULL,
    last_successful_run VARCHAR(27),
    last_scheduled_for VARCHAR(27),
    next_scheduled_run VARCHAR(27),
    plan_after VARCHAR(27),
    consumed_parent_success_at VARCHAR(27),
    next_due_at VARCHAR(27),
    retired_at VARCHAR(27),
    declared_enabled BOOLEAN,
    created_at VARCHAR(27) NOT NULL,
    updated_at VARCHAR(27) NOT NULL,
    CONSTRAINT origin_known CHECK (origin IN ('declared', 'runtime')),
    CONSTRAINT schedule_type_known CHECK (schedule_type IN ('none', 'cron', 'interval', 'once', 'on_demand', 'dependent', 'dormant_dependent')),
    CONSTRAINT misfire_policy_known CHECK (misfire_policy IN ('fire_once_now', 'do_nothing', 'fire_all')),
    CONSTRAINT priority_range CHECK (priority BETWEEN 0 AND 31),
    CONSTRAINT max_retries_range CHECK (max_retries >= 0),
    CONSTRAINT max_instances_range CHECK (max_instances >= 1),
    CONSTRAINT failure_count_range CHECK (failure_count >= 0),
    CONSTRAINT lifetime_failures_range CHECK (lifetime_failures >= 0),
    CONSTRAINT variance_range CHECK (variance_seconds >= 0),
    CONSTRAINT cron_has_expression CHECK (schedule_type <> 'cron' OR cron_expression IS NOT NULL),
    CONSTRAINT interval_has_seconds CHECK (schedule_type <> 'interval' OR (interval_seconds IS NOT NULL AND interval_seconds > 0)),
    CONSTRAINT once_has_moment CHECK (schedule_type <> 'once' OR scheduled_at IS NOT NULL),
    CONSTRAINT not_its_own_parent CHECK (depends_on_id <> id),
    UNIQUE (external_id),
    FOREIGN KEY(group_id) REFERENCES trax_manifest_group (id),
    FOREIGN KEY(depends_on_id) REFERENCES trax_manifest (id) ON DELETE SET NULL
);

CREATE TABLE trax_dead_letter (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    manifest_id INTEGER,
    train TEXT NOT NULL,
    group_id INTEGER,
    priority SMALLINT DEFAULT '0' NOT NULL,
    input TEXT,
    retry TEXT,
    timeout_seconds FLOAT,
    unique_key TEXT,
    status TEXT NOT NULL,
    reason TEXT NOT NULL,
    retry_count INTEGER NOT NULL,
    last_metadata_id INTEGER,
    failure_exception TEXT,
    failure_junction TEXT,
    failure_reason TEXT,
    fingerprint TEXT DEFAULT '' NOT NULL,
    dead_lettered_at VARCHAR(27) NOT NULL,
    resolved_at VARCHAR(27),
    note TEXT,
    retry_metadata_id INTEGER,
    CONSTRAINT status_known CHECK (status IN ('awaiting_intervention', 'retried', 'acknowledged')),
    CONSTRAINT resolved_when_not_awaiting CHECK ((status = 'awaiting_intervention') = (resolved_at IS NULL)),
    FOREIGN KEY(manifest_id) REFERENCES trax_manifest (id)
);

CREATE TABLE trax_metadata (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    entry_id INTEGER,
    manifest_id INTEGER,
    group_id INTEGER,
    parent_id INTEGER,
    worker_id INTEGER,
    created_at VARCHAR(27) NOT NULL,
    scheduled_for VARCHAR(27),
    submitted_at VARCHAR(27),
    handing_over_until VARCHAR(27),
    timeout_seconds FLOAT,
    attempt INTEGER DEFAULT '1' NOT NULL,
    priority SMALLINT DEFAULT '0' NOT NULL,
    exempt BOOLEAN DEFAULT 0 NOT NULL,
    cancel_requested BOOLEAN DEFAULT 0 NOT NULL,
    external_id TEXT NOT NULL,
    train TEXT NOT NULL,
    input TEXT,
    submitter TEXT,
    host TEXT,
    cancel_reason TEXT,
    progress FLOAT,
    progress_message TEXT,
    state TEXT NOT NULL,
    started_at VARCHAR(27),
    ended_at VARCHAR(27),
    output TEXT,
    current_junction TEXT,
    junction_started_at VARCHAR(27),
    junctions TEXT,
    failure_junction TEXT,
    failure_exception TEXT,
    failure_reason TEXT,
    stack_trace TEXT,
    CONSTRAINT state_known CHECK (state IN ('pending', 'in_progress', 'completed', 'failed', 'cancelled')),
    CONSTRAINT priority_range CHECK (priority BETWEEN 0 AND 31),
    CONSTRAINT attempt_range CHECK (attempt >= 1),
    CONSTRAINT progress_range CHECK (progress BETWEEN 0 AND 1),
    CONSTRAINT ended_when_terminal CHECK ((state IN ('pending', 'in_progress')) = (ended_at IS NULL)),
    CONSTRAINT started_when_completed CHECK (state <> 'completed' OR started_at IS NOT NULL),
    FOREIGN KEY(manifest_id) REFERENCES trax_manifest (id)
);

CREATE INDEX trax_audit_action_idx ON trax_audit (action, id);

CREATE INDEX trax_audit_actor_idx ON trax_audit (actor, id);

CREATE INDEX trax_audit_noun_idx ON trax_audit (noun, id);

CREATE INDEX trax_log_metadata_idx ON trax_log (metadata_id, id);

CREATE INDEX trax_manifest_group_ad_hoc_idx ON trax_manifest_group (id) WHERE ad_hoc AND retired_at IS NULL;

CREATE INDEX trax_manifest_group_apply_idx ON trax_manifest_group (apply_priority_at) WHERE apply_priority_at IS NOT NULL;

CREATE INDEX trax_manifest_group_bound_idx ON trax_manifest_group (id) WHERE max_active_jobs IS NOT NULL OR NOT enabled;

CREATE INDEX trax_manifest_group_declared_idx ON trax_manifest_group (id) WHERE declared IS NOT NULL;

CREATE INDEX trax_web_session_expires_idx ON trax_web_session (expires_at);

CREATE UNIQUE INDEX trax_web_session_key_idx ON trax_web_session ("key");

CREATE INDEX trax_work_queue_cancelled_idx ON trax_work_queue (id) WHERE status = 'cancelled';

CREATE INDEX trax_work_queue_dead_letter_idx ON trax_work_queue (dead_letter_id) WHERE dead_letter_id IS NOT NULL;

CREATE INDEX trax_work_queue_delayed_idx ON trax_work_queue (scheduled_at) WHERE status = 'queued' AND NOT ready AND parked IS NULL;

CREATE INDEX trax_work_queue_external_id_idx ON trax_work_queue (external_id);

CREATE INDEX trax_work_queue_manifest_idx ON trax_work_queue (manifest_id, id) WHERE manifest_id IS NOT NULL;

CREATE INDEX trax_work_queue_not_ready_in_group_idx ON trax_work_queue (group_id) WHERE status = 'queued' AND NOT ready AND group_id IS NOT NULL;

CREATE UNIQUE INDEX trax_work_queue_one_scheduled_idx ON trax_work_queue (manifest_id) WHERE status = 'queued' AND origin IN ('schedule', 'retry');

CREATE INDEX trax_work_queue_parked_at_idx ON trax_work_queue (parked_at) WHERE status = 'queued' AND parked IS NOT NULL;

CREATE INDEX trax_work_queue_parked_idx ON trax_work_queue (parked, parked_at) WHERE status = 'queued' AND parked IS NOT NULL;

CREATE INDEX trax_work_queue_queued_of_manifest_idx ON trax_work_queue (manifest_id) WHERE status = 'queued' AND manifest_id IS NOT NULL;

CREATE INDEX trax_work_queue_ready_idx ON trax_work_queue (group_priority DESC, priority DESC, created_at, id) WHERE status = 'queued' AND ready;

CREATE INDEX trax_work_queue_ready_in_group_idx ON trax_work_queue (group_id, priority DESC, created_at, id) WHERE status = 'queued' AND ready;

CREATE UNIQUE INDEX trax_work_queue_unique_key_idx ON trax_work_queue (unique_key, train) WHERE unique_key IS NOT NULL;

CREATE INDEX trax_worker_identity_left_idx ON trax_worker_identity (last_run_id) WHERE last_run_id IS NOT NULL;

CREATE INDEX trax_manifest_batch_idx ON trax_manifest (batch) WHERE batch IS NOT NULL;

CREATE INDEX trax_manifest_due_idx ON trax_manifest (next_due_at) WHERE next_due_at IS NOT NULL;

CREATE INDEX trax_manifest_group_idx ON trax_manifest (group_id);

CREATE INDEX trax_manifest_live_idx ON trax_manifest (external_id) WHERE retired_at IS NULL;

CREATE INDEX trax_manifest_parent_idx ON trax_manifest (depends_on_id) WHERE depends_on_id IS NOT NULL;

CREATE INDEX trax_manifest_resting_idx ON trax_manifest (id) WHERE enabled AND next_due_at IS NULL AND retired_at IS NULL;

CREATE INDEX trax_manifest_retired_idx ON trax_manifest (external_id) WHERE retired_at IS NOT NULL;

CREATE INDEX trax_dead_letter_awaiting_idx ON trax_dead_letter (id) WHERE status = 'awaiting_intervention';

CREATE INDEX trax_dead_letter_fingerprint_idx ON trax_dead_letter (fingerprint, id) WHERE status = 'awaiting_intervention';

CREATE INDEX trax_dead_letter_group_idx ON trax_dead_letter (group_id) WHERE group_id IS NOT NULL;

CREATE INDEX trax_dead_letter_manifest_idx ON trax_dead_letter (manifest_id) WHERE manifest_id IS NOT NULL;

CREATE UNIQUE INDEX trax_dead_letter_one_awaiting_idx ON trax_dead_letter (manifest_id) WHERE status = 'awaiting_intervention' AND manifest_id IS NOT NULL;

CREATE INDEX trax_dead_letter_retry_idx ON trax_dead_letter (retry_metadata_id) WHERE retry_metadata_id IS NOT NULL;

CREATE INDEX trax_metadata_active_of_manifest_idx ON trax_metadata (manifest_id) WHERE state IN ('pending', 'in_progress') AND manifest_id IS NOT NULL;

CREATE INDEX trax_metadata_cancelled_idx ON trax_metadata (id) WHERE state = 'cancelled';

CREATE INDEX trax_metadata_claim_idx ON trax_metadata (submitter, priority DESC, id) WHERE state = 'pending';

CREATE INDEX trax_metadata_direct_idx ON trax_metadata (id) WHERE state = 'in_progress' AND submitter IS NULL;

CREATE INDEX trax_metadata_ended_idx ON trax_metadata (train, ended_at) WHERE ended_at IS NOT NULL;

CREATE INDEX trax_metadata_failed_idx ON trax_metadata (id) WHERE state = 'failed';

CREATE INDEX trax_metadata_manifest_idx ON trax_metadata (manifest_id, id) WHERE manifest_id IS NOT NULL;

CREATE INDEX trax_metadata_outbox_idx ON trax_metadata (submitter, priority DESC, id) WHERE state = 'pending' AND submitted_at IS NULL AND submitter <> 'local';

CREATE INDEX trax_metadata_parent_idx ON trax_metadata (parent_id) WHERE parent_id IS NOT NULL;

CREATE INDEX trax_metadata_running_idx ON trax_metadata (worker_id) WHERE state = 'in_progress';

