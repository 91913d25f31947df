package main

func init() {
	const (
		roots     = "internal/dialer/roots.go"
		module    = "edge/edge.go"
		variables = "edge/environment.go"
		trust     = "edge/trust.go"
		api       = "edge/workload.go"
		reading   = "edge/answer.go"
		failures  = "edge/failure.go"
	)
	tables["edge"] = []mutation{
		{File: roots, Old: "outer, socket, err = d.dialOnce(ctx, creds, cert, newer)", New: "_ = newer",
			Test: "./internal/dialer -run TestNewerRootsAreUsed"},
		{File: roots, Old: "case newer.Equal(former):\n\t\treturn nil, nil", New: "case false:\n\t\treturn nil, nil",
			Test: "./internal/dialer -run TestWithoutNewerRoots"},
		{File: roots, Old: "\tif unverified(err) {\n\t\terr = notVerifiedYet(err)\n\t}\n", New: "",
			Test: "./internal/dialer -run TestEachTransportMayRetry"},
		{File: roots, Old: "if _, otherHost := errors.AsType[x509.HostnameError](refused); otherHost {", New: "if false {",
			Test: "./internal/dialer -run TestTheHostIsVerified"},
		{File: roots, Old: "if transport.Find(err) != nil {\n\t\treturn err\n\t}\n\t_, hint", New: "_, hint",
			Test: "./internal/dialer -run TestACertificateOfTheFuture"},
		{File: roots, Old: "case err == nil && roots == nil:", New: "case false:",
			Test: "./internal/dialer -run TestFailuresOfRootCAs"},
		{File: roots, Old: "rootsError(transport.Network, err)", New: "rootsError(transport.Invalid, err)",
			Test: "./internal/dialer -run TestFailuresOfRootCAs"},
		{File: roots, Old: "e.Err = &noRootsError{refused, e.Err}", New: "_ = refused",
			Test: "./internal/dialer -run TestFailuresOfRootCAs"},
		{File: "internal/dialer/dialer.go", Old: "\t\tc.RootCAs = roots\n", New: "",
			Test: "./internal/dialer -run TestRootsThatVerify"},
		{File: "fileupload/options.go", Old: "\t\tnetwork.RootCAs = nil\n", New: "",
			Test: "./internal/dialer -run TestUploadsUseRoots"},

		{File: module, Old: "if m.Credentials.GatewayHost != \"\" {", New: "if true {",
			Test: "./edge -run TestWithoutAGateway"},
		{File: module, Old: "[]string{varEdgeHubString, varHubString}", New: "[]string{varHubString, varEdgeHubString}",
			Test: "./edge -run TestConnectionStringsComeFirst"},
		{File: module, Old: "file != \"\" && creds.GatewayHost != \"\"", New: "file != \"\"",
			Test: "./edge -run TestACAFileVerifies"},
		{File: variables, Old: "!strings.EqualFold(v, tokenScheme)", New: "v != tokenScheme",
			Test: "./edge -run TestValuesOfTheEnvironment"},
		{File: variables, Old: "if creds.ModuleID == \"\" {", New: "if false {",
			Test: "./edge -run TestErrorsOfConnectionStrings"},
		{File: variables, Old: "err != nil || u.User != nil ||", New: "err != nil ||",
			Test: "./edge -run TestErrorsShowNoPassword"},
		{File: trust, Old: "due = age >= minFetch", New: "due = true",
			Test: "./edge -run TestTheBundleIsFetchedAgain"},
		{File: trust, Old: "maxAge   = time.Hour", New: "maxAge   = 1000 * time.Hour", Test: "./edge -run TestAnOldBundle"},
		{File: trust, Old: "case old == nil || refused != nil:", New: "case true:",
			Test: "./edge -run TestAnOldBundle"},
		{File: trust, Old: "case old == nil || refused != nil:", New: "case old == nil:",
			Test: "./edge -run TestAnOldBundle"},
		{File: trust, Old: "len(text) > maxBundle {", New: "false {", Test: "./edge -run TestBundlesInPEM"},
		{File: api, Old: "err = &violation{err}", New: "_ = err", Test: "./edge -run TestRefusals"},
		{File: api, Old: "len(said.Digest) != macSize", New: "len(said.Digest) == 0",
			Test: "./edge -run TestADigestOfAnotherSize"},
		{File: api, Old: "case ctx.Err() != nil:\n\t\treturn ctx.Err()\n", New: "", Test: "./edge -run TestACallEnds"},
		{File: api, Old: "err = &slowError{w.timeout}", New: "_ = err", Test: "./edge -run TestASlowDaemon"},
		{File: reading, Old: "left: maxAnswer}", New: "left: 9 * maxAnswer}", Test: "./edge -run TestRefusals"},
		{File: reading, Old: "case errors.Is(s.err, io.EOF):\n\t\treturn io.ErrUnexpectedEOF\n", New: "",
			Test: "./edge -run TestRefusals"},
		{File: reading, Old: "[]error{e.error, transport.ErrViolation}", New: "[]error{e.error, transport.Invalid}",
			Test: "./edge -run TestRefusals"},
		{File: failures, Old: "{404, 404, transport.Unavailable, unknownModule},\n", New: "",
			Test: "./edge -run TestAModuleOfAFormerGeneration"},
		{File: failures, Old: "{500, 599, transport.Unavailable, \"\"},\n", New: "",
			Test: "./edge -run TestAModuleWaitsForTheDaemon"},
		{File: failures, Old: "Message: scrub.Peer(said.Message)", New: "Message: said.Message",
			Test: "./edge -run TestRefusals"},
	}
}
