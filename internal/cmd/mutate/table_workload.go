package main

func init() {
	const (
		server = "testbroker/workload/"
		test   = "./testbroker/workload -run "
		invoke = "testbroker/internal/httpfront/invoke.go"
	)
	tables["workload"] = []mutation{
		{File: server + "calls.go", Old: "q.module.PrimaryKey)", New: "q.module.SecondaryKey)",
			Test: test + "TestSignsWithTheKeyOfTheModule"},
		{File: server + "serve.go", Old: "genid == \"\" || genid == m.Gen", New: "genid != m.ID || genid == m.Gen",
			Test: test + "TestADeletedModule"},
		{File: server + "serve.go", Old: "len(v) != 1 || !slices", New: "len(v) == 0 || !slices",
			Test: test + "TestRefusesRequests"},
		{File: server + "serve.go", Old: "http.MaxBytesReader(q.w, q.Body, maxBody)", New: "q.Body",
			Test: test + "TestRefusesRequests"},
		{File: server + "serve.go", Old: "|| s.options.Device != \"\" && d.ID != s.options.Device", New: "",
			Test: test + "TestOneDeviceOnly"},
		{File: server + "calls.go", Old: "aead.Seal(nil, vector, plain, about)",
			New:  "aead.Seal(nil, vector, plain, about[:0])",
			Test: test + "TestEncryptsForOneModule"},
		{File: server + "certificate.go", Old: "case asked.Before(until):", New: "case false:",
			Test: test + "TestIssuesCertificates"},
		{File: server + "certificate.go", Old: "\tif !s.options.Overlap {\n\t\tall = all[:1]\n\t}\n", New: "",
			Test: test + "TestTheTrustBundleFollowsARotation"},
		{File: server + "listen.go", Old: "e.listener.Close() // removes the socket\n", New: "",
			Test: test + "TestListensOnSockets/unix"},
		{File: server + "listen.go", Old: "\t\tfor c := range s.conns {\n\t\t\tabort(c)\n\t\t}\n", New: "",
			Test: test + "TestTheSocketOfAnAbsentServerIsGone"},
		{File: server + "fault.go", Old: "time.AfterFunc(f.For, in.Remove)", New: "time.AfterFunc(f.For, func() {})",
			Test: test + "TestAnAbsentServer"},
		{File: server + "apply.go", Old: "\tcase <-q.Context().Done():\n", New: "", Test: test + "TestSlowAndMute"},

		// Method calls of modules at a gateway.
		{File: invoke, Old: "edge != \"\" && edge != q.ID.Device", New: "false",
			Test: "./testbroker -run TestOnlyModulesOfTheEdgeDevice"},
		{File: invoke, Old: "if err := q.AuthenticateAs(q.ID); err != nil {", New: "if err := error(nil); err != nil {",
			Test: "./testbroker -run TestMethodCallsThatAGatewayRefuses"},
		{File: invoke, Old: "context.WithoutCancel(q.Context())", New: "context.Context(q.Context())",
			Test: "./testbroker -run TestACallGoesOn"},
		{File: invoke, Old: "return err != nil || t.Policy == \"\"", New: "return err == nil || t.Policy == \"\"",
			Test: "./testbroker -run TestBackEndsCallMethods"},
		{File: invoke, Old: "ConnectTimeout:  time", New: "ConnectTimeout:  0 * time",
			Test: "./testbroker -run TestTheTimeoutsOfACall"},
		{File: invoke, Old: "q.Hub.InvokeLocal(", New: "q.Hub.InvokeMethod(",
			Test: "./testbroker -run TestModulesCallMethodsOffLine"},
		{File: "testbroker/internal/web/request.go", Old: "\t\tq.ID = q.route.ID(q.Request)\n", New: "",
			Test: "./testbroker -run TestFaultsOfCalls"},

		{File: "testbroker/internal/hub/certs.go", Old: "\thost := h.certs.host\n", New: "\thost := \"\"\n",
			Test: "./testbroker -run TestARotationKeepsThePresentedName"},
		{File: "testbroker/internal/hub/certs.go", Old: "seededKey(h.Seed, h.certs.rotated)", New: "seededKey(h.Seed, 0)",
			Test: "./testbroker -run TestRotationsRepeatWithASeed"},
		{File: "testbroker/internal/hub/rotate.go", Old: "full.SerialNumber = own.SerialNumber",
			New:  "full.SerialNumber = h.certs.ca.SerialNumber",
			Test: "./testbroker -run TestTheHubIssuesCertificates"},
	}
}
