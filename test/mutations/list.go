package main

var mutations = []mutation{
	// Limiters and the fair queue.
	{
		fault: "a token bucket saves up more than its burst",
		file:  "lua/lib/limiter.lua",
		old:   "    if b.level > cap then b.level = cap end\n", new: "",
		pkg: "./admission/limiter", tests: "^(TestLimiters_Conform|TestStrategies_Conform|TestLimiterScript_AgreesWithGo)$",
	},
	{
		fault: "rate 0 admits what was saved up",
		file:  "lua/lib/limiter.lua",
		old:   "    if b.rate <= 0 then return 0 end\n    return math.floor(b.level / TOKEN)", new: "    return math.floor(b.level / TOKEN)",
		pkg: "./admission/limiter", tests: "^(TestLimiters_Conform|TestStrategies_Conform|TestLimiterScript_AgreesWithGo)$",
	},
	{
		fault: "a leaky bucket saves up a quiet time",
		file:  "lua/lib/limiter.lua",
		old:   "b.level = (b.level - n * TOKEN) % TOKEN", new: "b.level = b.level - n * TOKEN",
		pkg: "./admission/limiter", tests: "^(TestLimiters_Conform|TestStrategies_Conform|TestLimiterScript_AgreesWithGo)$",
	},
	{
		fault: "a flow is charged cost times its weight",
		file:  "lua/lib/fair.lua",
		old:   "math.ceil(cost * fair.UNIT * 1000 / weight)", new: "math.ceil(cost * fair.UNIT * weight / 1000)",
		pkg: "./bulk/store", tests: "^(TestScripts_ComputeFormulas|TestShares_FollowWeightAndLevel)$",
	},
	{
		fault: "an idle flow hoards credit",
		file:  "lua/lib/fair.lua",
		old:   "  local tag = v\n", new: "  local tag = 0\n",
		pkg: "./bulk/store", tests: "^(TestTypeLimit_IsSharedByTenants|TestPatch_OfTenantsTokenActsInsideTheTenant)$",
	},

	// Rooms.
	{
		fault: "a newcomer is admitted past the queue",
		file:  "lua/room_enter.lua",
		old:   "return open and length == 0 and s.now", new: "return open and s.now",
		pkg: "./admission", tests: "^(TestJoin_NeverPassesQueue|TestRoom_FollowsModel)$",
	},
	{
		fault: "a join ignores max_active",
		file:  "lua/room_enter.lua",
		old:   "and free >= 1 and limit", new: "and limit",
		pkg: "./admission", tests: "^(TestRoom_FollowsModel|TestJoin_AdmitsThenQueues)$",
	},
	{
		fault: "a tick ignores max_active",
		file:  "lua/room_advance.lua",
		old:   "  if p.max_active > 0 then n = math.min(n, p.max_active - active(s)) end\n", new: "",
		pkg: "./admission", tests: "^TestTick_KeepsMaxActive$",
	},
	{
		fault: "a tick takes no tokens",
		file:  "lua/room_advance.lua",
		old:   "  limit.take(n)\n", new: "",
		pkg: "./admission", tests: "^TestRoom_FollowsModel$",
	},
	{
		fault: "an absent ticket is admitted",
		file:  "lua/room_advance.lua",
		old:   "if overdue > 0 then", new: "if false then",
		pkg: "./admission", tests: "^(TestRoom_FollowsModel|TestTick_ParksThousandsOfAbsentTickets)$",
	},
	{
		fault: "somebody is admitted right after an outage",
		file:  "lua/room_advance.lua",
		old:   "local n = s.now >= s.hold and admit_front(admissible(limit), passed) or 0", new: "local n = admit_front(admissible(limit), passed)",
		pkg: "./admission", tests: "^(TestRoom_FollowsModel|TestLossOfData_KeepsPlaces|TestFailover_KeepsPlaces)$",
	},
	{
		fault: "a paused room admits",
		file:  "lua/room_advance.lua",
		old:   "if p.paused or p.reject or p.prequeue then return 0 end", new: "if p.reject or p.prequeue then return 0 end",
		pkg: "./admission", tests: "^(TestOperators_ChangeRoom|TestRoom_FollowsModel)$",
	},
	{
		fault: "a claim leaves the ticket admitted",
		file:  "lua/room_claim.lua",
		old:   "  redis.call('ZREM', ADMITTED, id)\n", new: "",
		pkg: "./admission", tests: "^(TestRoom_FollowsModel|TestSequentialRoom_Steps)$",
	},
	{
		fault: "a reset keeps old tokens",
		file:  "lua/room_reset.lua",
		old:   "s.fence, s.reset = s.fence + 1, s.time", new: "s.reset = s.time",
		pkg: "./admission", tests: "^(TestOperators_ChangeRoom|TestRoom_FollowsModel)$",
	},
	{
		fault: "a revoked session goes on",
		file:  "lua/room_revoke.lua",
		old:   "  revoke(s, p, id, 0)\n", new: "",
		pkg: "./admission", tests: "^(TestOperators_ChangeRoom|TestRevocation_HoldsUntilPassesEnd)$",
	},
	{
		fault: "a session that nobody remembers has ended right after a loss",
		file:  "lua/lib/sessions.lua",
		old:   " or at < s.born + p.ttl", new: "",
		pkg: "./admission", tests: "^TestAlive_AfterLoss$",
	},
	{
		fault: "an outage revives sessions that had ended",
		file:  "admission/alive.go",
		old:   "	return b.from\n}", new: "	return \"\"\n}",
		pkg: "./admission", tests: "^TestAlive_WithoutStore$",
	},
	{
		fault: "a gateway does not ask the store about a session that was silent",
		file:  "admission/alive.go",
		old:   "int64(b.ttl + b.ttl/4)", new: "int64(2 * b.ttl)",
		pkg: "./admission", tests: "^TestAlive_(AsksStoreOnce|EndsAfterSilenceEverywhere)$",
	},
	{
		fault: "a lower ttl shortens sessions that there are",
		file:  "lua/lib/sessions.lua",
		old:   "'GT', 'CH'", new: "'CH'",
		pkg: "./admission", tests: "^TestSessionTTL_",
	},

	// Tokens and clients.
	{
		fault: "a token of another room counts",
		file:  "token/verify.go",
		old:   `case room == "" || string(c.aud) != room:`, new: `case room == "":`,
		pkg: "./token", tests: "Forged|AnotherUse|Refus",
	},
	{
		fault: "an expired token counts",
		file:  "token/verify.go",
		old:   "return now >= exp+Leeway", new: "return now >= exp+Leeway+3600",
		pkg: "./token", tests: "Forged|AnotherUse|Refus",
	},
	{
		fault: "a waiting token serves as a pass",
		file:  "token/verify.go",
		old:   "if h.kind != want {", new: "if false {",
		pkg: "./token", tests: "Forged|AnotherUse|Refus",
	},
	{
		fault: "a signature is not compared",
		file:  "token/verify.go",
		old:   "if !h.key.verifies(raw[:dot2], raw[dot2+1:]) {", new: "if false {",
		pkg: "./token", tests: "Forged|AnotherUse|Refus",
	},
	{
		fault: "anybody may name the client's address",
		file:  "gateway/client/peer.go",
		old:   "if !forwarded.Contains(trusted, p.Addr) {", new: "if false {",
		pkg: "./gateway/client", tests: "^TestPeer",
	},
	{
		fault: "a cookie of another host passes behind a blank of Unicode",
		file:  "gateway/client/cookies.go",
		old:   `bytes.Trim(b, " \t")`, new: "bytes.TrimSpace(b)",
		pkg: "./gateway/client", tests: "^TestCookies$",
	},

	// The proxy.
	{
		fault: "a Content-Length beside Transfer-Encoding is accepted",
		file:  "gateway/http1/request_header.go",
		old:   "return refuseBoth\n", new: "return nil\n",
		pkg: "./gateway/proxy", tests: "^TestListener_RefusesMalformedRequests$",
	},
	{
		fault: "a chunk may end anywhere",
		file:  "gateway/http1/chunked.go",
		old:   "if len(b) > 0 && b[0] != '\\r' || len(b) > 1 && b[1] != '\\n' {", new: "if false {",
		pkg: "./gateway/proxy", tests: "^(TestListener_RefusesMalformedRequests|TestBody_BrokenChunks)$",
	},
	{
		fault: "headers that Connection names reach the origin",
		file:  "gateway/proxy/outgoing.go",
		old:   "keep = !h.Connection.Named.Has(h.Name(l)) && ", new: "keep = ",
		pkg: "./gateway/proxy", tests: "^(TestForward_RequestHeaders|TestListener_AcceptsUnusualRequests|TestForward_PlainRequest)$",
	},
	{
		fault: "the visitor's own X-Forwarded-For is believed",
		file:  "gateway/http1/field.go",
		old:   `request.add("x-forwarded-", kindDrop, true)`, new: ``,
		pkg: "./gateway/proxy", tests: "^TestForward_RequestHeaders$",
	},

	// Jobs.
	{
		fault: "a late acknowledgement decides a job",
		file:  "lua/jobs_ack.lua",
		old:   "if stored and run.held and", new: "if stored and",
		pkg: "./bulk/store", tests: "^(TestAck_RefusesOldFence|TestStore_AgreesWithModel)$",
	},
	{
		fault: "retries never end",
		file:  "lua/jobs_ack.lua",
		old:   "if run.tries > retries then", new: "if false then",
		pkg: "./bulk/store", tests: "^(TestRetry_ThenDeadThenRedriven|TestStore_AgreesWithModel)$",
	},
	{
		fault: "a refusal spends a try",
		file:  "lua/jobs_ack.lua",
		old:   "run.refusals = run.refusals + 1", new: "run.refusals, run.tries = run.refusals + 1, run.tries + 1",
		pkg: "./bulk/store", tests: "^(TestRefusal_DelaysItsOwnJob|TestStore_AgreesWithModel)$",
	},
	{
		fault: "a group is sealed with a chunk half in",
		file:  "lua/group_seal.lua",
		old:   "if g[G_CHUNKS_OPEN] > 0 and ARGV[4] ~= '1' then", new: "if false then",
		pkg: "./bulk/store", tests: "^TestAddJobs_ContinuesChunk$",
	},
	{
		fault: "a job that runs is cancelled twice",
		file:  "lua/job_cancel.lua",
		old:   "if string.sub(record, 1, 1) ~= 'P' then return", new: "if false then return",
		pkg: "./bulk/api", tests: "^TestCancelJob_",
	},
	{
		fault: "a worker that has disconnected keeps its jobs until their leases end",
		file:  "bulk/remote/lease.go",
		old:   "b.giveBack(context.WithoutCancel(ctx), owner, jobs)", new: "",
		pkg: "./bulk/api", tests: "^TestWork_DisconnectedWorkerHoldsNoJob$",
	},
	{
		fault: "a request waits beside a job whose event came during its pull",
		file:  "bulk/remote/parking.go",
		old:   "if p.before != p.events {", new: "if false {",
		pkg: "./bulk/remote", tests: "^TestLease_SeesEventDuringItsPull$",
	},
	{
		fault: "a worker's token opens the whole API",
		file:  "bulk/api/server.go",
		old:   "if err := workScope(path, who); err != nil {", new: "if err := workScope(path, who); err != nil && !who.worker {",
		pkg: "./bulk/api", tests: "^TestGuard_LimitsWorkerTokenToWork$",
	},
	{
		fault: "a batch has jobs of several groups",
		file:  "bulk/batch.go",
		old:   "key := batchKey{m.leased.Type, m.leased.Group}", new: `key := batchKey{m.leased.Type, ""}`,
		pkg: "./bulk", tests: "^TestBatch_HasJobsOfOneGroup$",
	},
	{
		fault: "a job that failed brings its next batch down",
		file:  "bulk/batch.go",
		old:   "if kind.Most == 1 || l.Attempt > 1 || l.Crashes > 0 {", new: "if kind.Most == 1 {",
		pkg: "./bulk", tests: "^TestBatch_IsolatesFailures$",
	},
	{
		fault: "a job of a batch succeeds without a verdict",
		file:  "bulk/handler/webhook/batch.go",
		old:   "if !there {", new: "if !there && len(list) == 0 {",
		pkg: "./bulk/handler/webhook", tests: "^TestBatch_ReadsVerdicts$",
	},
	{
		fault: "one job alone opens a breaker",
		file:  "lua/lib/breakers.lua",
		old:   "if jobkey ~= b.job and jobkey ~= b.other then b.run", new: "if true then b.run",
		pkg: "./bulk/store", tests: "^TestBreaker_OneJobAloneOpensNone$",
	},
	{
		fault: "a permit opens every path",
		file:  "gateway/steps.go",
		old:   "	case !samePath:\n", new: "	case !samePath && false:\n",
		pkg: "./gateway", tests: "^TestPermit_Opens",
	},
	{
		fault: "a header field hides the method of a step",
		file:  "gateway/route/step.go",
		old:   " && !client.OverridesMethod(q)", new: " && (true || !client.OverridesMethod(q))",
		pkg: "./gateway/route", tests: "^TestStep$",
	},
	{
		fault: "a permit is redeemed again after the store lost its record",
		file:  "lua/permit_redeem.lua",
		old:   " or state[1] ~= ARGV[2]", new: "",
		pkg: "./gateway/console", tests: "^TestRedeem",
	},
	{
		fault: "callbacks reach private addresses",
		file:  "bulk/outbound/address.go",
		old:   `	{netip.MustParsePrefix("10.0.0.0/8"), "a private address"},` + "\n", new: "",
		pkg: "./bulk/outbound", tests: "^(TestNotPublic_ClassifiesAddresses|TestGuard_ChecksResolvedAddress)$",
	},
	{
		fault: "a redirect leads a webhook to another host",
		file:  "bulk/outbound/client.go",
		old:   "a.Hostname() == b.Hostname() && ", new: "",
		pkg: "./bulk/outbound", tests: "^TestPost_RedirectsStayOnHost$",
	},
	{
		fault: "a webhook does not say which try it is",
		file:  "bulk/handler/webhook/webhook.go",
		old:   "strconv.FormatInt(job.Attempt, 10)", new: "strconv.FormatInt(1, 10)",
		pkg: "./bulk/handler/webhook", tests: "^TestWebhook_SendsDocumentedRequest$",
	},
	{
		fault: "a relay sends rows that it has not marked",
		file:  "bulk/relay/relay.go",
		old:   "slices.DeleteFunc(slices.Clone(ready), func(w *row) bool { return w.tried })", new: "nil",
		pkg: "./bulk/relay", tests: "^(TestRelay_AsksForJobsOfASealedGroup|TestRelay_LosesAndRepeatsNothing)$",
	},
	{
		fault: "a relay sends a row elsewhere without asking whether its sealed group has it",
		file:  "bulk/relay/send.go",
		old:   "if !w.tried && !partly {\n\t\t\tw.refuse", new: "if !partly {\n\t\t\tw.refuse",
		pkg: "./bulk/relay", tests: "^(TestRelay_AsksForJobsOfASealedGroup|TestRelay_LosesAndRepeatsNothing)$",
	},
	{
		fault: "a relay sends a row again whose group was deleted",
		file:  "bulk/relay/send.go",
		old:   "case w.tried || partly:", new: "case partly:",
		pkg: "./bulk/relay", tests: "^(TestRelay_AsksForJobsOfASealedGroup|TestRelay_LosesAndRepeatsNothing)$",
	},
	{
		fault: "a compressed upload may expand without bounds",
		file:  "bulk/api/encoding.go",
		old:   "b.read > maxExpansion*b.sent.n", new: "b.read < 0",
		pkg: "./bulk/api", tests: "^(TestUpload_RefusesBadCompression|TestDecompress_StopsAtBomb)$",
	},
	{
		fault: "a full table forgets what is in use",
		file:  "internal/table/table.go",
		old:   "e.used = e.used || use", new: "e.used = e.used",
		pkg: "./internal/table", tests: "^TestTable_",
	},
	{
		fault: "a refusal of a compat room lacks the object of Cloudflare",
		file:  "gateway/write.go",
		old:   "if p.Out && v.room != nil && v.room.options.Compat == CompatCloudflare {", new: "if false {",
		pkg: "./gateway", tests: "^TestCompat_EveryStateHasTheObject$",
	},
	{
		fault: "a pre-queue is no event for clients of Cloudflare",
		file:  "gateway/answer/compat.go",
		old:   "event := c.room.Event || prequeueing", new: "event := c.room.Event",
		pkg: "./gateway/answer", tests: "^TestCompat_",
	},
}
