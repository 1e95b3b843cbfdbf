-- index answer_tokens_by_approval
CREATE INDEX answer_tokens_by_approval ON answer_tokens (approval_id)

-- index approvals_by_step
CREATE INDEX approvals_by_step ON approvals (step_id)

-- index approvals_by_task
CREATE INDEX approvals_by_task ON approvals (task_id)

-- index approvals_decided
CREATE INDEX approvals_decided ON approvals (decided_at) WHERE decided_at IS NOT NULL

-- index approvals_pending
CREATE INDEX approvals_pending ON approvals (id) WHERE status = 'pending'

-- index budgets_by_task
CREATE INDEX budgets_by_task ON budgets (task_id)

-- index channel_messages_by_approval
CREATE INDEX channel_messages_by_approval ON channel_messages (approval_id)

-- index context_snapshots_by_client_token
CREATE INDEX context_snapshots_by_client_token ON context_snapshots (task_id, client_token) WHERE client_token IS NOT NULL

-- index context_snapshots_by_task
CREATE INDEX context_snapshots_by_task ON context_snapshots (task_id, id)

-- index conversation_summaries
CREATE INDEX conversation_summaries ON conversation_turns (conversation, number) WHERE role = 'summary'

-- index events_by_task
CREATE UNIQUE INDEX events_by_task ON events (task_id, seq) WHERE task_id IS NOT NULL

-- index firings_by_time
CREATE INDEX firings_by_time ON firings (trigger_id, recorded_at)

-- index firings_queued
CREATE INDEX firings_queued ON firings (trigger_id, due_at) WHERE status = 'queued'

-- index memories_by_call
CREATE UNIQUE INDEX memories_by_call ON memories (call_key) WHERE call_key IS NOT NULL

-- index memories_by_scope
CREATE INDEX memories_by_scope ON memories (scope, id) WHERE forgotten_at IS NULL

-- index outcomes_by_call
CREATE INDEX outcomes_by_call ON idempotency_outcomes (tool_call_id)

-- index signals_by_task
CREATE INDEX signals_by_task ON signals (task_id, name, id)

-- index sqlite_autoindex_alembic_version_1


-- index sqlite_autoindex_answer_tokens_1


-- index sqlite_autoindex_approvals_1


-- index sqlite_autoindex_artifacts_1


-- index sqlite_autoindex_budgets_1


-- index sqlite_autoindex_channel_cursors_1


-- index sqlite_autoindex_channel_messages_1


-- index sqlite_autoindex_context_snapshots_1


-- index sqlite_autoindex_conversation_turns_1


-- index sqlite_autoindex_conversations_1


-- index sqlite_autoindex_daily_spend_1


-- index sqlite_autoindex_firings_1


-- index sqlite_autoindex_idempotency_outcomes_1


-- index sqlite_autoindex_pairings_1


-- index sqlite_autoindex_request_keys_1


-- index sqlite_autoindex_schema_revision_1


-- index sqlite_autoindex_signals_1


-- index sqlite_autoindex_state_history_1


-- index sqlite_autoindex_state_values_1


-- index sqlite_autoindex_steps_1


-- index sqlite_autoindex_tasks_1


-- index sqlite_autoindex_terminal_messages_1


-- index sqlite_autoindex_tool_calls_1


-- index sqlite_autoindex_triggers_1


-- index sqlite_autoindex_work_1


-- index sqlite_autoindex_workers_1


-- index sqlite_autoindex_workflows_1


-- index step_logs_by_task
CREATE INDEX step_logs_by_task ON step_logs (task_id, id)

-- index steps_by_owner
CREATE INDEX steps_by_owner ON steps (owner) WHERE owner IS NOT NULL

-- index steps_by_place
CREATE UNIQUE INDEX steps_by_place ON steps (task_id, "index", parallel_index)

-- index steps_due
CREATE INDEX steps_due ON steps (task_id, wake_at, "index") WHERE wake_at IS NOT NULL

-- index steps_held
CREATE INDEX steps_held ON steps (task_id, "index", parallel_index) WHERE held = 1

-- index tasks_by_dedupe_key
CREATE UNIQUE INDEX tasks_by_dedupe_key ON tasks (dedupe_key) WHERE dedupe_key IS NOT NULL

-- index tasks_by_parent
CREATE INDEX tasks_by_parent ON tasks (parent_step_id) WHERE parent_step_id IS NOT NULL

-- index tasks_by_retry
CREATE INDEX tasks_by_retry ON tasks (retry_of) WHERE retry_of IS NOT NULL

-- index tasks_by_status
CREATE INDEX tasks_by_status ON tasks (status, id)

-- index tasks_by_trigger
CREATE INDEX tasks_by_trigger ON tasks (trigger_id, id) WHERE trigger_id IS NOT NULL

-- index tasks_by_workflow
CREATE INDEX tasks_by_workflow ON tasks (workflow_name, workflow_version)

-- index tasks_due
CREATE INDEX tasks_due ON tasks (priority, next_wake_time) WHERE status = 'running'

-- index tasks_of_workflow_by_id
CREATE INDEX tasks_of_workflow_by_id ON tasks (workflow_name, id)

-- index tasks_open_by_conversation
CREATE INDEX tasks_open_by_conversation ON tasks (conversation, id) WHERE conversation IS NOT NULL AND status IN ('pending', 'running', 'paused')

-- index tasks_open_by_trigger
CREATE INDEX tasks_open_by_trigger ON tasks (trigger_id) WHERE trigger_id IS NOT NULL AND status IN ('pending', 'running', 'paused')

-- index terminal_messages_unread
CREATE INDEX terminal_messages_unread ON terminal_messages (recipient, id) WHERE shown_at IS NULL

-- index tool_calls_by_step
CREATE INDEX tool_calls_by_step ON tool_calls (step_id, number, attempt)

-- index tool_calls_by_task
CREATE INDEX tool_calls_by_task ON tool_calls (task_id)

-- index triggers_by_workflow
CREATE INDEX triggers_by_workflow ON triggers (workflow)

-- index triggers_due
CREATE INDEX triggers_due ON triggers (kind, next_at) WHERE status IN ('active', 'paused') AND next_at IS NOT NULL

-- index work_by_client_token
CREATE INDEX work_by_client_token ON work (client_token) WHERE client_token IS NOT NULL

-- index work_by_step
CREATE INDEX work_by_step ON work (step_id)

-- index work_by_task
CREATE INDEX work_by_task ON work (task_id)

-- index work_dead
CREATE INDEX work_dead ON work (id) WHERE status IN ('failed', 'expired')

-- index work_open
CREATE INDEX work_open ON work (queue, status) WHERE status IN ('leased', 'running', 'asked')

-- index work_queued
CREATE INDEX work_queued ON work (queue, priority, id) WHERE status = 'queued'

-- table alembic_version
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
)

-- table answer_tokens
CREATE TABLE answer_tokens (
	hash TEXT NOT NULL, 
	channel TEXT NOT NULL, 
	identity TEXT NOT NULL, 
	approval_id TEXT NOT NULL, 
	said TEXT, 
	expires_at BIGINT NOT NULL, 
	used_at BIGINT, 
	PRIMARY KEY (hash), 
	FOREIGN KEY(approval_id) REFERENCES approvals (id) ON DELETE CASCADE
)

-- table approvals
CREATE TABLE approvals (
	id TEXT NOT NULL, 
	task_id TEXT NOT NULL, 
	step_id TEXT NOT NULL, 
	attempt BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	status TEXT NOT NULL, 
	message TEXT NOT NULL, 
	request TEXT NOT NULL, 
	request_hash TEXT NOT NULL, 
	choices TEXT, 
	value_schema TEXT, 
	editable TEXT, 
	who TEXT, 
	expires_at BIGINT, 
	on_expiry TEXT NOT NULL, 
	remind_at BIGINT, 
	remind_us BIGINT, 
	renews TEXT, 
	decided_by TEXT, 
	decided_channel TEXT, 
	decided_at BIGINT, 
	comment TEXT, 
	value TEXT, 
	edits TEXT, 
	approved_hash TEXT, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT decided_whole CHECK ((status = 'pending') = (decided_at IS NULL)), 
	CONSTRAINT status_known CHECK (status IN ('pending', 'approved', 'denied', 'answered', 'expired', 'withdrawn')), 
	FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE
)

-- table artifacts
CREATE TABLE artifacts (
	hash TEXT NOT NULL, 
	size BIGINT NOT NULL, 
	encoding TEXT NOT NULL, 
	data BLOB NOT NULL, 
	created_at BIGINT NOT NULL, 
	touched_at BIGINT NOT NULL, 
	PRIMARY KEY (hash)
)

-- table budgets
CREATE TABLE budgets (
	id TEXT NOT NULL, 
	task_id TEXT NOT NULL, 
	tokens_limit BIGINT, 
	microusd_limit BIGINT, 
	tokens_used BIGINT NOT NULL, 
	microusd_used BIGINT NOT NULL, 
	tokens_reserved BIGINT NOT NULL, 
	microusd_reserved BIGINT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE
)

-- table channel_cursors
CREATE TABLE "channel_cursors" (
	channel TEXT NOT NULL, 
	xid BIGINT NOT NULL, 
	event_id BIGINT NOT NULL, 
	owner TEXT, 
	owned_until BIGINT NOT NULL, 
	failures BIGINT NOT NULL, 
	error TEXT, 
	retry_at BIGINT, 
	updated_at BIGINT NOT NULL, 
	trouble TEXT, 
	PRIMARY KEY (channel)
)

-- table channel_messages
CREATE TABLE channel_messages (
	channel TEXT NOT NULL, 
	place TEXT NOT NULL, 
	approval_id TEXT NOT NULL, 
	reference TEXT NOT NULL, 
	shown TEXT NOT NULL, 
	delivered_at BIGINT NOT NULL, 
	PRIMARY KEY (channel, place, approval_id), 
	FOREIGN KEY(approval_id) REFERENCES approvals (id) ON DELETE CASCADE
)

-- table context_snapshots
CREATE TABLE context_snapshots (
	id TEXT NOT NULL, 
	task_id TEXT NOT NULL, 
	step_id TEXT, 
	parent TEXT, 
	label TEXT, 
	value TEXT NOT NULL, 
	written_by TEXT NOT NULL, 
	created_at BIGINT NOT NULL, client_token TEXT, 
	PRIMARY KEY (id), 
	FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE
)

-- table conversation_turns
CREATE TABLE conversation_turns (
	conversation TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	role TEXT NOT NULL, 
	content TEXT NOT NULL, 
	task_id TEXT, 
	step_id TEXT, 
	tokens BIGINT NOT NULL, 
	covers_until BIGINT, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (conversation, number), 
	CONSTRAINT role_known CHECK (role IN ('user', 'assistant', 'summary')), 
	CONSTRAINT summary_covers CHECK ((role = 'summary') = (covers_until IS NOT NULL))
)

-- table conversations
CREATE TABLE conversations (
	id TEXT NOT NULL, 
	last_number BIGINT NOT NULL, 
	forgotten_until BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	PRIMARY KEY (id)
)

-- table daily_spend
CREATE TABLE "daily_spend" (
	day TEXT NOT NULL, 
	tokens_used BIGINT NOT NULL, 
	microusd_used BIGINT NOT NULL, 
	tokens_reserved BIGINT NOT NULL, 
	microusd_reserved BIGINT NOT NULL, 
	ms_used BIGINT DEFAULT '0' NOT NULL, 
	ms_reserved BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (day)
)

-- table events
CREATE TABLE events (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	xid BIGINT NOT NULL, 
	task_id TEXT, 
	seq BIGINT, 
	type TEXT NOT NULL, 
	step_id TEXT, 
	attempt BIGINT, 
	at BIGINT NOT NULL, 
	data TEXT, 
	FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE
)

-- table firings
CREATE TABLE firings (
	trigger_id TEXT NOT NULL, 
	"key" TEXT NOT NULL, 
	status TEXT NOT NULL, 
	reason TEXT, 
	nominal_at BIGINT, 
	due_at BIGINT, 
	task_id TEXT, 
	run_id TEXT, 
	input TEXT, 
	context TEXT, 
	workflow_version BIGINT, 
	spec_hash TEXT, 
	until_at BIGINT, 
	count BIGINT, 
	recorded_at BIGINT NOT NULL, 
	seen_at BIGINT, 
	PRIMARY KEY (trigger_id, "key"), 
	CONSTRAINT status_known CHECK (status IN ('started', 'late', 'queued', 'skipped', 'missed', 'baseline')), 
	CONSTRAINT started_whole CHECK ((status IN ('started', 'late')) = (task_id IS NOT NULL)), 
	FOREIGN KEY(trigger_id) REFERENCES triggers (id) ON DELETE CASCADE
)

-- table idempotency_outcomes
CREATE TABLE idempotency_outcomes (
	idempotency_key TEXT NOT NULL, 
	tool_call_id TEXT NOT NULL, 
	status TEXT NOT NULL, 
	response_hash TEXT, 
	resolved_at BIGINT, 
	PRIMARY KEY (idempotency_key), 
	CONSTRAINT status_known CHECK (status IN ('unknown', 'succeeded', 'failed')), 
	FOREIGN KEY(tool_call_id) REFERENCES tool_calls (id) ON DELETE CASCADE
)

-- table memories
CREATE TABLE memories (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	scope TEXT NOT NULL, 
	text TEXT NOT NULL, 
	terms TEXT NOT NULL, 
	task_id TEXT, 
	step TEXT, 
	call_key TEXT, 
	written_by TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	forgotten_at BIGINT, 
	forget_key TEXT
)

-- table memories_index
CREATE VIRTUAL TABLE memories_index USING fts5(terms, content='memories', content_rowid='id', tokenize='ascii', detail='none')

-- table memories_index_config
CREATE TABLE 'memories_index_config'(k PRIMARY KEY, v) WITHOUT ROWID

-- table memories_index_data
CREATE TABLE 'memories_index_data'(id INTEGER PRIMARY KEY, block BLOB)

-- table memories_index_docsize
CREATE TABLE 'memories_index_docsize'(id INTEGER PRIMARY KEY, sz BLOB)

-- table memories_index_idx
CREATE TABLE 'memories_index_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID

-- table pairings
CREATE TABLE pairings (
	channel TEXT NOT NULL, 
	identity TEXT NOT NULL, 
	name TEXT NOT NULL, 
	scopes TEXT NOT NULL, 
	code_hash TEXT, 
	code_expires_at BIGINT, 
	paired_at BIGINT, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY (channel, identity)
)

-- table request_keys
CREATE TABLE request_keys (
	"key" TEXT NOT NULL, 
	request_hash TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	PRIMARY KEY ("key")
)

-- table schema_revision
CREATE TABLE schema_revision (
	revision TEXT NOT NULL, 
	PRIMARY KEY (revision)
)

-- table signals
CREATE TABLE signals (
	id TEXT NOT NULL, 
	task_id TEXT NOT NULL, 
	name TEXT NOT NULL, 
	payload TEXT, 
	sent_at BIGINT NOT NULL, 
	taken_by TEXT, 
	PRIMARY KEY (id), 
	FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE
)

-- table sqlite_sequence
CREATE TABLE sqlite_sequence(name,seq)

-- table state_history
CREATE TABLE state_history (
	scope TEXT NOT NULL, 
	name TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	value TEXT, 
	task_id TEXT, 
	step_id TEXT, 
	call_id TEXT, 
	written_by TEXT NOT NULL, 
	written_at BIGINT NOT NULL, 
	PRIMARY KEY (scope, name, version)
)

-- table state_values
CREATE TABLE state_values (
	scope TEXT NOT NULL, 
	name TEXT NOT NULL, 
	value TEXT, 
	version BIGINT NOT NULL, 
	task_id TEXT, 
	step_id TEXT, 
	call_id TEXT, 
	written_by TEXT NOT NULL, 
	written_at BIGINT NOT NULL, 
	PRIMARY KEY (scope, name)
)

-- table step_logs
CREATE TABLE step_logs (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	task_id TEXT NOT NULL, 
	step_id TEXT NOT NULL, 
	attempt BIGINT NOT NULL, 
	at BIGINT NOT NULL, 
	stream TEXT NOT NULL, 
	text TEXT NOT NULL, 
	FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE
)

-- table steps
CREATE TABLE steps (
	id TEXT NOT NULL, 
	task_id TEXT NOT NULL, 
	"index" BIGINT NOT NULL, 
	parallel_index BIGINT NOT NULL, 
	name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	status TEXT NOT NULL, 
	attempt BIGINT NOT NULL, 
	max_attempts BIGINT NOT NULL, 
	deps_remaining BIGINT NOT NULL, 
	deps_failed BIGINT NOT NULL, 
	wake_at BIGINT, 
	held BIGINT NOT NULL, 
	placed BIGINT NOT NULL, 
	alone BIGINT NOT NULL, 
	owner TEXT, 
	claim_token BIGINT NOT NULL, 
	claim_turn BIGINT, 
	failures BIGINT NOT NULL, 
	waiting_on TEXT, 
	checkpoint TEXT, 
	output TEXT, 
	error TEXT, 
	skip_reason TEXT, 
	idempotency_key TEXT, 
	item TEXT, 
	items TEXT, 
	parallel_count BIGINT, 
	items_done BIGINT NOT NULL, 
	items_placed BIGINT NOT NULL, 
	items_ended BIGINT NOT NULL, 
	items_failed BIGINT NOT NULL, 
	process_id BIGINT, 
	process_started TEXT, 
	started_at BIGINT, 
	ended_at BIGINT, state_read TEXT, first_claimed_at BIGINT, 
	PRIMARY KEY (id), 
	CONSTRAINT claim_whole CHECK ((status = 'running') = (owner IS NOT NULL) AND (owner IS NULL) = (claim_turn IS NULL)), 
	CONSTRAINT status_known CHECK (status IN ('pending', 'running', 'waiting', 'paused', 'succeeded', 'failed', 'skipped')), 
	FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE
)

-- table tasks
CREATE TABLE tasks (
	id TEXT NOT NULL, 
	status TEXT NOT NULL, 
	workflow_name TEXT NOT NULL, 
	workflow_version BIGINT NOT NULL, 
	priority BIGINT NOT NULL, 
	input TEXT NOT NULL, 
	output TEXT, 
	error TEXT, 
	next_wake_time BIGINT, 
	deadline BIGINT, 
	steps_open BIGINT NOT NULL, 
	steps_running BIGINT NOT NULL, 
	steps_failed BIGINT NOT NULL, 
	steps_held BIGINT NOT NULL, 
	places_taken BIGINT NOT NULL, 
	phase TEXT NOT NULL, 
	event_seq BIGINT NOT NULL, 
	"trigger" TEXT, 
	dedupe_key TEXT, 
	parent_task_id TEXT, 
	parent_step_id TEXT, 
	depth BIGINT NOT NULL, 
	origin_id TEXT NOT NULL, 
	retry_of TEXT, 
	forked_from TEXT, 
	pause_reason TEXT, 
	created_at BIGINT NOT NULL, 
	started_at BIGINT, 
	ended_at BIGINT, pause_kind TEXT, pause_command TEXT, trigger_id TEXT, chat_origin TEXT, conversation TEXT, 
	PRIMARY KEY (id), 
	CONSTRAINT priority_known CHECK (priority IN (0, 1, 2)), 
	CONSTRAINT status_known CHECK (status IN ('pending', 'running', 'paused', 'succeeded', 'failed', 'canceled'))
)

-- table terminal_messages
CREATE TABLE terminal_messages (
	id TEXT NOT NULL, 
	recipient TEXT NOT NULL, 
	text TEXT NOT NULL, 
	attachments TEXT, 
	task_id TEXT, 
	created_at BIGINT NOT NULL, 
	shown_at BIGINT, 
	PRIMARY KEY (id)
)

-- table tool_calls
CREATE TABLE tool_calls (
	id TEXT NOT NULL, 
	task_id TEXT NOT NULL, 
	step_id TEXT NOT NULL, 
	number BIGINT NOT NULL, 
	attempt BIGINT NOT NULL, 
	action TEXT NOT NULL, 
	idempotency_key TEXT NOT NULL, 
	remote_key TEXT NOT NULL, 
	request_hash TEXT NOT NULL, 
	request TEXT, 
	response TEXT, 
	error TEXT, 
	on_unknown TEXT NOT NULL, 
	send_by BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	model TEXT, 
	prompt_hash TEXT, 
	tokens_in BIGINT, 
	tokens_out BIGINT, 
	cost_microusd BIGINT, 
	reserved_microusd BIGINT, 
	reserved_tokens BIGINT, 
	request_id TEXT, 
	stop_reason TEXT, 
	latency_ms BIGINT, 
	created_at BIGINT NOT NULL, reserved_ms BIGINT, 
	PRIMARY KEY (id), 
	FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE
)

-- table triggers
CREATE TABLE triggers (
	id TEXT NOT NULL, 
	workflow TEXT NOT NULL, 
	name TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	spec TEXT NOT NULL, 
	spec_hash TEXT NOT NULL, 
	timing_hash TEXT NOT NULL, 
	workflow_version BIGINT NOT NULL, 
	status TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	pause_reason TEXT, 
	paused_until BIGINT, 
	resumed_at BIGINT, 
	problem TEXT, 
	next_at BIGINT, 
	next_nominal BIGINT, 
	last_nominal BIGINT, 
	anchor_at BIGINT NOT NULL, 
	cursor TEXT, 
	polls BIGINT NOT NULL, 
	failures BIGINT NOT NULL, 
	last_ok_at BIGINT, 
	last_item_at BIGINT, 
	last_error TEXT, 
	skip_items TEXT, 
	alert TEXT, 
	owner TEXT, 
	owned_until BIGINT, 
	directory TEXT, 
	created_at BIGINT NOT NULL, 
	removed_at BIGINT, 
	pruned_until BIGINT, not_listening TEXT, pause_kind TEXT, 
	PRIMARY KEY (id), 
	CONSTRAINT status_known CHECK (status IN ('active', 'paused', 'broken', 'removed'))
)

-- table work
CREATE TABLE work (
	id TEXT NOT NULL, 
	task_id TEXT NOT NULL, 
	step_id TEXT NOT NULL, 
	step_index BIGINT NOT NULL, 
	parallel_index BIGINT NOT NULL, 
	attempt BIGINT NOT NULL, 
	queue TEXT NOT NULL, 
	priority BIGINT NOT NULL, 
	status TEXT NOT NULL, 
	input TEXT NOT NULL, 
	intent TEXT, 
	call_id TEXT, 
	lease_us BIGINT NOT NULL, 
	start_within_us BIGINT NOT NULL, 
	timeout_us BIGINT, 
	lease_id TEXT, 
	leased_by TEXT, 
	lease_expires_at BIGINT, 
	leased_at BIGINT, 
	start_by BIGINT, 
	started_at BIGINT, 
	run_by BIGINT, 
	client_token TEXT, 
	last_lease_id TEXT, 
	approval_id TEXT, 
	answer TEXT, 
	reason TEXT, 
	created_at BIGINT NOT NULL, 
	ended_at BIGINT, 
	PRIMARY KEY (id), 
	CONSTRAINT status_known CHECK (status IN ('queued', 'leased', 'running', 'asked', 'completed', 'failed', 'expired', 'withdrawn')), 
	CONSTRAINT lease_whole CHECK ((status IN ('leased', 'running')) = (lease_id IS NOT NULL) AND (status IN ('leased', 'running')) = (leased_by IS NOT NULL) AND (status IN ('leased', 'running')) = (lease_expires_at IS NOT NULL)), 
	FOREIGN KEY(task_id) REFERENCES tasks (id) ON DELETE CASCADE
)

-- table workers
CREATE TABLE workers (
	id TEXT NOT NULL, 
	turn BIGINT NOT NULL, 
	dead BIGINT NOT NULL, 
	host TEXT NOT NULL, 
	process_id BIGINT NOT NULL, 
	process_started TEXT NOT NULL, 
	started_at BIGINT NOT NULL, 
	ended_at BIGINT, 
	PRIMARY KEY (id)
)

-- table workflows
CREATE TABLE workflows (
	name TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	hash TEXT NOT NULL, 
	source TEXT, 
	graph TEXT NOT NULL, 
	path TEXT, 
	created_at BIGINT NOT NULL, 
	removed_at BIGINT, code TEXT, 
	PRIMARY KEY (name, version)
)

-- trigger memories_indexed
CREATE TRIGGER memories_indexed AFTER INSERT ON memories BEGIN INSERT INTO memories_index (rowid, terms) VALUES (new.id, new.terms); END

-- trigger memories_unindexed
CREATE TRIGGER memories_unindexed AFTER DELETE ON memories BEGIN INSERT INTO memories_index (memories_index, rowid, terms) VALUES ('delete', old.id, old.terms); END
