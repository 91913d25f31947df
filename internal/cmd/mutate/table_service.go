package main

func init() {
	const (
		grants  = "testbroker/internal/amqpfront/grants.go"
		replies = "testbroker/internal/amqpfront/answers.go"
		sasl    = "testbroker/internal/amqpfront/sasl.go"
		send    = "testbroker/internal/amqpfront/servicec2d.go"
		policy  = "testbroker/internal/hub/policy.go"
		notice  = "testbroker/internal/hub/notice.go"
		lock    = "testbroker/internal/hub/noticelock.go"
		c2d     = "testbroker/internal/hub/c2d.go"
		attach  = "testbroker/internal/amqpfront/attach.go"
		conn    = "testbroker/internal/amqpfront/conn.go"
		link    = "testbroker/internal/amqpfront/servicenotice.go"
		queue   = "testbroker/internal/hub/c2dqueue.go"
		web     = "testbroker/internal/servicefront/messages.go"
	)
	tables["service"] = []mutation{
		{File: queue, Old: "q.Hub.feedback(e) // before", New: "defer q.Hub.feedback(e) // before",
			Test: "./testbroker/internal/hub -run TestFeedbackIsKeptBeforeTheMessageEnds"},
		{File: "testbroker/internal/hub/keepfeedback.go", Old: "if n.Deliveries >= noticeDeliveries {", New: "if false {",
			Test: "./testbroker/internal/hub -run TestFeedbackSurvives"},
		{File: lock, Old: "\tn.Deliveries++\n\tq.touchLocked(n)\n", New: "\tn.Deliveries++\n",
			Test: "./testbroker/internal/hub -run TestFeedbackSurvives"},
		{File: notice, Old: "if len(q.unsettled) >= maxNotices {", New: "if false {",
			Test: "./testbroker/internal/hub -run TestNoticesAreBounded"},
		{File: lock, Old: "n.Deliveries < noticeDeliveries", New: "n.Deliveries > 0",
			Test: "./testbroker -run TestLocksOfNotices"},
		{File: lock, Old: "!q.waiting[0].Enqueued.Add(noticeLife).After(clock)", New: "clock.IsZero()",
			Test: "./testbroker -run TestLocksOfNotices"},
		{File: notice, Old: "; n.lock.key.holder == r {", New: "; false {",
			Test: "./testbroker -run TestReceiversShareNotices"},
		{File: notice, Old: "q.next = at + 1", New: "q.next = at", Test: "./testbroker -run TestReceiversShareNotices"},
		{File: lock, Old: "delete(q.locks, n.lock.key)", New: "_ = n",
			Test: "./testbroker/internal/hub -run TestNoticesAgreeWithAModel"},
		{File: lock, Old: "*l = slices.Insert(*l, i, n)", New: "_ = i\n*l = append(*l, n)",
			Test: "./testbroker/internal/hub -run TestNoticesAgreeWithAModel"},
		{File: notice, Old: "q.setTimerLocked(q.nextEndLocked(now, clock))", New: "q.setTimerLocked(0, false)",
			Test: "./testbroker -run TestLocksOfNotices"},
		{File: notice, Old: "q.setTimerLocked(q.nextEndLocked(now, clock))",
			New:  "left, some := q.nextEndLocked(now, q.hub.Now())\nq.setTimerLocked(left, some && left > 0)",
			Test: "./testbroker/internal/hub -run TestNoticesEndBetweenReadings"},
		{File: notice, Old: "passed++", New: "passed = len(q.waiting)",
			Test: "./testbroker/internal/hub -run TestNoticesPassOneThatIsTooLarge"},
		{File: notice, Old: "q.stopped = true", New: "",
			Test: "./testbroker/internal/hub -run TestClosedHubsQueueNoNotices"},
		{File: queue, Old: "q.stopped = true", New: "", Test: "./testbroker/internal/hub -run TestResetStopsQueues"},
		{File: queue, Old: " && !q.stopped {", New: " {", Test: "./testbroker/internal/hub -run TestResetStopsQueues"},
		{File: link, Old: "uint64(len(payload)) > limit {\n\t\treturn hub.NoticeNever",
			New:  "uint64(len(payload)) > limit {\n\t\treturn hub.NoticeLater",
			Test: "./testbroker -run TestNoticesAboveTheLimitWait"},
		{File: c2d, Old: "case !writable(m.Expiry):", New: "case false:",
			Test: "./testbroker -run TestRefusedC2DOverAMQP|TestBackEndsSendC2DOverHTTP"},
		{File: attach, Old: "; why != nil {", New: "; why != nil && false {",
			Test: "./testbroker -run TestSlowAttachOutlivesTheToken"},
		{File: conn, Old: "own := selector == \"\" || ", New: "own := ",
			Test: "./testbroker -run TestCloseConnectionsOfBackEnds"},
		{File: link, Old: "case *wire.Accepted, *wire.Rejected:", New: "case *wire.Accepted:",
			Test: "./testbroker -run TestFeedbackOverAMQP|TestOutcomesOfNoticesAreAnswered"},
		{File: link, Old: "UserID: []byte(r.link.conn.hub.Host), ", New: "", Test: "./testbroker -run TestFeedbackOverAMQP"},
		{File: queue, Old: "e.Feedback != \"\" && q.box == Commands", New: "q.box == Commands",
			Test: "./testbroker -run TestFeedbackOverAMQP"},
		{File: "testbroker/internal/amqpfront/faults.go", Old: "f.Link == fault.LinkAny && l.kind == fault.LinkTelemetry",
			New: "f.Link == fault.LinkAny", Test: "./testbroker -run TestFaultsOfMessagesOfBackEnds"},
		{File: send, Old: "err != nil || !s.link.conn.detachAfterMessage(s.link)", New: "true",
			Test: "./testbroker -run TestFaultsOfMessagesOfBackEnds"},
		{File: send, Old: "int64(p.AbsoluteExpiryTime.V) > 0", New: "p.AbsoluteExpiryTime.OK",
			Test: "./testbroker -run TestBackEndsSendC2DOverAMQP"},
		{File: web, Old: "m.Ack = strings.ToLower(m.Ack)", New: "_ = m.Ack",
			Test: "./testbroker -run TestBackEndsSendC2DOverHTTP"},
		{File: grants, Old: "strings.HasPrefix(path, s.path+\"/\")", New: "strings.HasPrefix(path, s.path)",
			Test: "./testbroker -run TestTokensOfPolicies$"},
		{File: grants, Old: "case k.rights&need == 0:", New: "case false:",
			Test: "./testbroker -run TestRightsOfPoliciesOverAMQP"},
		{File: grants, Old: "return k.rights&hubdata.DeviceConnect != 0 && k.allDevices()", New: "return k.allDevices()",
			Test: "./testbroker -run TestRightsOfPoliciesOverAMQP"},
		{File: grants, Old: "grantKey{s, rights, until.IsZero()}", New: "grantKey{s, rights, false}",
			Test: "./testbroker -run TestGrantsAreKeptApart"},
		{File: grants, Old: "&& a.allowedLocked(path, hubdata.ServiceConnect) != nil", New: "",
			Test: "./testbroker -run TestTokensOfPoliciesEnd"},
		{File: grants, Old: "	if s.policy != \"\" {\n		a.served()\n	}\n", New: "",
			Test: "./testbroker -run TestPoliciesOverSASL"},
		{File: grants, Old: "host == \"\" || !f.hub.Knows(host)", New: "!f.hub.Knows(host)",
			Test: "./testbroker -run TestTokensOfPolicies$"},
		{File: replies, Old: "target.Address == replyTo", New: "false",
			Test: "./testbroker -run TestRepliesToTokensAreRouted"},
		{File: replies, Old: "l.Session() == request.Session()", New: "false",
			Test: "./testbroker -run TestRepliesToTokensAreRouted"},
		{File: replies, Old: "cmp.Compare(l.number, to.number)", New: "cmp.Compare(to.number, l.number)",
			Test: "./testbroker -run TestRepliesToTokensAreRouted"},
		{File: sasl, Old: "if policy == \"\" {", New: "if false {", Test: "./testbroker -run TestPoliciesOverSASL"},
		{File: sasl, Old: "scope{policy: policy}, rights, ", New: "scope{policy: policy}, rights&0, ",
			Test: "./testbroker -run TestPoliciesOverSASL"},
		{File: sasl, Old: "tok.Policy != policy", New: "false", Test: "./testbroker -run TestPoliciesOverSASL"},
		{File: policy, Old: "return h.policies[t.Policy].rights &^ hubdata.DeviceConnect, nil",
			New: "return h.policies[t.Policy].rights, nil", Test: "./testbroker -run TestTokensOfPolicies$"},
		{File: send, Old: "p.Name == \"iothub-ack\"", New: "false", Test: "./testbroker -run TestBackEndsSendC2DOverAMQP"},
		{File: send, Old: "!ok || !strings.EqualFold(rest, \"messages/devicebound\")", New: "!ok || rest == \"\"",
			Test: "./testbroker -run TestRefusedC2DOverAMQP"},
	}
}
