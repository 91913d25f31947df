package main

func init() {
	const (
		grants = "testbroker/internal/amqpfront/grants.go"
		cbs    = "testbroker/internal/amqpfront/cbs.go"
		sasl   = "testbroker/internal/amqpfront/sasl.go"
		send   = "testbroker/internal/amqpfront/servicec2d.go"
		policy = "testbroker/internal/hub/policy.go"
	)
	tables["service"] = []mutation{
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
		{File: cbs, Old: "target.Address == replyTo", New: "false", Test: "./testbroker -run TestRepliesToTokensAreRouted"},
		{File: cbs, Old: "cmp.Compare(l.number, to.number)", New: "cmp.Compare(to.number, l.number)",
			Test: "./testbroker -run TestRepliesToTokensAreRouted"},
		{File: sasl, Old: "tok.Policy != policy", New: "false", Test: "./testbroker -run TestPoliciesOverSASL"},
		{File: policy, Old: "return h.policies[t.Policy].rights &^ hubdata.DeviceConnect, nil",
			New: "return h.policies[t.Policy].rights, nil", Test: "./testbroker -run TestTokensOfPolicies$"},
		{File: send, Old: "p.Name == \"iothub-ack\"", New: "false", Test: "./testbroker -run TestBackEndsSendC2DOverAMQP"},
		{File: send, Old: "!ok || !strings.EqualFold(rest, \"messages/devicebound\")", New: "!ok || rest == \"\"",
			Test: "./testbroker -run TestRefusedC2DOverAMQP"},
	}
}
