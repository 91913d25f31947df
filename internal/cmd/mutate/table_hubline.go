package main

func init() {
	tables["hubline"] = []mutation{
		// Secrets stay off the command line.
		{File: "cmd/hubline/internal/target/source.go", Old: "!f.OnCommandLine && !isOpen(f.Connect)", New: "false",
			Test: "./cmd/hubline -run TestSecrets"},
		{File: "cmd/hubline/internal/target/source.go", Old: `&& !strings.Contains(rest, "@")`, New: `&& rest != ""`,
			Test: "./cmd/hubline -run TestSecrets"},
		{File: "cmd/hubline/main.go", Old: "err = target.Refuse(args)", New: "_ = target.Refuse",
			Test: "./cmd/hubline -run TestSecrets"},

		// What was accepted is acknowledged, once.
		{File: "cmd/hubline/send.go", Old: "limited(session.alive, s.flush)", New: "limited(session.ctx, s.flush)",
			Test: "./cmd/hubline -run TestCtrlC"},
		{File: "cmd/hubline/listen.go", Old: "if l.settled++; l.settled == l.count {", New: "if l.seen == l.count {",
			Test: "./cmd/hubline -run TestListen"},
		{File: "cmd/hubline/listen.go", Old: "if l.tool.outTerminal {", New: "if false {",
			Test: "./cmd/hubline -run TestATerminal"},

		// No row of the doctor is green for what was not seen to work.
		{File: "cmd/hubline/internal/doctor/doctor.go", Old: "(r.Mark == Bad || r.Mark == Skipped)",
			New: "r.Mark == Bad", Test: "./cmd/hubline/internal/doctor -run TestNoNetwork"},
		{File: "cmd/hubline/internal/doctor/tls.go", Old: "DNSName: s.site.host, CurrentTime", New: "CurrentTime",
			Test: "./cmd/hubline/internal/doctor -run TestTheFirstRedRow"},
		{File: "cmd/hubline/internal/doctor/tls.go", Old: "if state.Version < tls.VersionTLS12 {", New: "if false {",
			Test: "./cmd/hubline/internal/doctor -run TestEachRow"},
		{File: "cmd/hubline/internal/doctor/tls.go", Old: "if azure(s.site.host) && !microsofts(root) {",
			New: "if false {", Test: "./cmd/hubline/internal/doctor -run TestEachRow"},
		{File: "cmd/hubline/internal/doctor/clock.go", Old: "case skew.Abs() >= skewBad:", New: "case skew >= skewBad:",
			Test: "./cmd/hubline/internal/doctor -run TestEachRow"},
		{File: "cmd/hubline/internal/doctor/connect.go", Old: "if elapsed > slowAnswer && elapsed > slowTimes*trip {",
			New: "if false {", Test: "./cmd/hubline/internal/doctor -run TestEachRow"},
		{File: "cmd/hubline/internal/doctor/connect.go", Old: "case <-c.lost:\n\t\treturn wrong",
			New:  "case <-make(chan int):\n\t\treturn wrong",
			Test: "./cmd/hubline/internal/doctor -run TestASecondDevice"},
		{File: "cmd/hubline/internal/doctor/connect.go", Old: "p.Target.Quiet(idle + 2*time.Minute)",
			New: "p.Target.Quiet(time.Minute)", Test: "./cmd/hubline/internal/doctor -run TestABox"},

		// Files, programs and back ends.
		{File: "cmd/hubline/provision.go", Old: "os.O_EXCL, 0o600)", New: "os.O_TRUNC, 0o600)",
			Test: "./cmd/hubline -run TestProvision"},
		{File: "cmd/hubline/method.go", Old: "\t\tb.full()\n", New: "\t\t_ = b.full\n",
			Test: "./cmd/hubline -run TestMethodServeByAProgram"},
		{File: "cmd/hubline/method.go", Old: "if !json.Valid(answer) {", New: "if false {",
			Test: "./cmd/hubline -run TestMethodServeByAProgram"},
		{File: "cmd/hubline/simulate.go", Old: `delete(all, "$version")`, New: `_ = "$version"`,
			Test: "./cmd/hubline -run TestTheSimulatedDevice"},
		{File: "cmd/hubline/policy.go", Old: "Last: last[i], Elapsed: elapsed[i]", New: "Elapsed: elapsed[i]",
			Test: "./cmd/hubline -run TestPolicyDraws"},
		{File: "cmd/hubline/internal/doctor/credentials.go", Old: "case now.After(leaf.NotAfter):", New: "case false:",
			Test: "./cmd/hubline/internal/doctor -run TestCertificates"},
		{File: "cmd/hubline/internal/doctor/credentials.go", Old: "if left < tokenSoon {", New: "if left < 0 {",
			Test: "./cmd/hubline/internal/doctor -run TestTokens"},
		{File: "cmd/hubline/internal/doctor/tls.go", Old: "known && other != string(root.Raw)", New: "known && other == \"\"",
			Test: "./cmd/hubline/internal/doctor -run TestTwoAuthorities"},
	}
}
