package main

func init() {
	const (
		grants  = "testbroker/internal/amqpfront/grants.go"
		cbs     = "testbroker/internal/amqpfront/cbs.go"
		replies = "testbroker/internal/amqpfront/answers.go"
		sasl    = "testbroker/internal/amqpfront/sasl.go"
		send    = "testbroker/internal/amqpfront/servicec2d.go"
		policy  = "testbroker/internal/hub/policy.go"
		notice  = "testbroker/internal/hub/notice.go"
		link    = "testbroker/internal/amqpfront/servicenotice.go"
		queue   = "testbroker/internal/hub/c2dqueue.go"
		web     = "testbroker/internal/servicefront/messages.go"
	)
	tables["service"] = []mutation{
		{File: notice, Old: "if len(q.waiting) >= maxNotices {", New: "if false {",
			Test: "./testbroker/internal/hub -run TestNoticesAreBounded"},
		{File: notice, Old: "n.Deliveries >= noticeDeliveries || ", New: "", Test: "./testbroker -run TestLocksOfNotices"},
		{File: notice, Old: "!n.Enqueued.Add(noticeLife).After(clock)", New: "false",
			Test: "./testbroker -run TestLocksOfNotices"},
		{File: notice, Old: "if n.holder == r {", New: "if false {", Test: "./testbroker -run TestReceiversShareNotices"},
		{File: notice, Old: "q.next = at + 1", New: "q.next = at", Test: "./testbroker -run TestReceiversShareNotices"},
		{File: notice, Old: "!n.locked.IsZero() && is(n)", New: "is(n)", Test: "./testbroker -run TestFeedbackOverHTTP"},
		{File: notice, Old: "if wait > 0 {", New: "if false {", Test: "./testbroker -run TestLocksOfNotices"},
		{File: link, Old: "case *wire.Accepted, *wire.Rejected:", New: "case *wire.Accepted:",
			Test: "./testbroker -run TestFeedbackOverAMQP|TestOutcomesOfNoticesAreAnswered"},
		{File: link, Old: "UserID: []byte(r.link.conn.hub.Host), ", New: "", Test: "./testbroker -run TestFeedbackOverAMQP"},
		{File: queue, Old: "e.Feedback != \"\" && q.box == Commands", New: "q.box == Commands",
			Test: "./testbroker -run TestFeedbackOverAMQP"},
		{File: web, Old: "m.Ack = strings.ToLower(m.Ack)", New: "_ = m.Ack",
			Test: "./testbroker -run TestBackEndsSendC2DOverHTTP"},
		{File: grants, Old: "strings.HasPrefix(path, s.path+\"/\")", New: "strings.HasPrefix(path, s.path)",
			Test: "./testbroker -run TestTokensOfPolicies$"},
		{File: grants, Old: "case g.rights&need == 0:", New: "case false:",
			Test: "./testbroker -run TestRightsOfPoliciesOverAMQP"},
		{File: grants, Old: "return rights&hubdata.DeviceConnect != 0 && s.allDevices()", New: "return s.allDevices()",
			Test: "./testbroker -run TestRightsOfPoliciesOverAMQP"},
		{File: grants, Old: "&& a.allowedLocked(path, hubdata.ServiceConnect) != nil", New: "",
			Test: "./testbroker -run TestTokensOfPoliciesEnd"},
		{File: grants, Old: "	if s.policy != \"\" {\n		a.served()\n	}\n", New: "",
			Test: "./testbroker -run TestPoliciesOverSASL"},
		{File: grants, Old: "host == \"\" || !f.hub.Knows(host)", New: "!f.hub.Knows(host)",
			Test: "./testbroker -run TestTokensOfPolicies$"},
		{File: replies, Old: "target.Address == replyTo", New: "false",
			Test: "./testbroker -run TestRepliesToTokensAreRouted"},
		{File: replies, Old: "cmp.Compare(l.number, to.number)", New: "cmp.Compare(to.number, l.number)",
			Test: "./testbroker -run TestRepliesToTokensAreRouted"},
		{File: sasl, Old: "tok.Policy != policy", New: "false", Test: "./testbroker -run TestPoliciesOverSASL"},
		{File: policy, Old: "return h.policies[t.Policy].rights &^ hubdata.DeviceConnect, nil",
			New: "return h.policies[t.Policy].rights, nil", Test: "./testbroker -run TestTokensOfPolicies$"},
		{File: send, Old: "p.Name == \"iothub-ack\"", New: "false", Test: "./testbroker -run TestBackEndsSendC2DOverAMQP"},
		{File: send, Old: "!ok || !strings.EqualFold(rest, \"messages/devicebound\")", New: "!ok || rest == \"\"",
			Test: "./testbroker -run TestRefusedC2DOverAMQP"},
	}
}
