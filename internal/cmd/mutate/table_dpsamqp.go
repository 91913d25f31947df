package main

func init() {
	const (
		session = "provisioning/dpsamqp/session.go"
		message = "provisioning/dpsamqp/message.go"
		tpm     = "provisioning/dpsamqp/tpm.go"
		carrier = "provisioning/dpsamqp/dpsamqp.go"
	)
	tables["dpsamqp"] = []mutation{
		{File: session, Old: "m.Properties.CorrelationID == id", New: "true",
			Test: "./provisioning/dpsamqp -run TestAnswersAndOutcomesInAnyOrder"},
		{File: session, Old: "if refusal != nil || refused != nil {\n", New: "if false {\n",
			Test: "./provisioning/dpsamqp -run TestRejections"},
		{File: session, Old: "s.conn.Stream.Fail(amqpscreen.ErrClosed)", New: "_ = amqpscreen.ErrClosed",
			Test:       "./provisioning/dpsamqp -run TestASilentService",
			Equivalent: "no call that ignores its context is known here; it is a second line of defense"},
		{File: session, Old: "\t\t\treturn nil, bad\n", New: "\t\t\t_ = bad\n",
			Test: "./provisioning/dpsamqp -run TestOddServices"},
		{File: session, Old: "_ = s.in.AcceptMessage(ctx, m)", New: "_ = m",
			Test: "./provisioning/dpsamqp -run TestFrames"},
		{File: session, Old: "MaxMessageSize: maxMessage, ", New: "", Test: "./provisioning/dpsamqp -run TestOddServices"},
		{File: message, Old: "ok && string(code) != \"null\"", New: "ok && len(code) > 0",
			Test: "./provisioning/dpsamqp -run TestRejections"},
		{File: message, Old: "if !hasCode(a.Body) {", New: "if true {", Test: "./provisioning/dpsamqp -run TestRejections"},
		{File: message, Old: "strings.EqualFold(name, \"retry-after\")", New: "strings.ToLower(name) == name",
			Test: "./provisioning/dpsamqp -run TestRejections"},
		{File: message, Old: "max(0, min(n, maxSeconds))", New: "min(n, maxSeconds)",
			Test: "./provisioning/dpsamqp -run TestRejections"},
		{File: carrier, Old: "errors.Is(err, amqpconn.ErrNoMechanism) || ", New: "",
			Test: "./provisioning/dpsamqp -run TestALoginWithoutAToken"},
		{File: carrier, Old: "\tcase limited.Err() != nil:\n", New: "\tcase false:\n",
			Test: "./provisioning/dpsamqp -run TestASilentService"},
		{File: tpm, Old: "challenge[0]&^lastFlag != segmentFlag|d.segments", New: "challenge[0]&segmentFlag == 0",
			Test: "./provisioning/dpsamqp -run TestOddDialoguesOfATPM"},
		{File: tpm, Old: "len(d.key)+len(challenge) > maxTPMKey", New: "false",
			Test: "./provisioning/dpsamqp -run TestOddDialoguesOfATPM"},
		{File: tpm, Old: "return nil, e.error", New: "_ = e", Test: "./provisioning/dpsamqp -run TestTheErrorOfTheTPMIsKept"},
		{File: "internal/amqpconn/sasl.go", Old: "size > maxSASLFrame", New: "false",
			Test: "./provisioning/dpsamqp -run TestOddDialoguesOfATPM"},
		{File: "internal/amqpconn/sasl.go", Old: "func() { _ = socket.Close() })", New: "func() {})",
			Test: "./provisioning/dpsamqp -run TestOddDialoguesOfATPM"},
	}
}
