package main

func init() {
	const (
		context  = "observe/otel/oteltrace/context.go"
		client   = "observe/otel/oteltrace/client.go"
		message  = "observe/otel/oteltrace/message.go"
		sessions = "observe/otel/oteltrace/transport.go"
		handlers = "observe/otel/oteltrace/handlers.go"
	)
	tables["trace"] = []mutation{
		// The context is carried, in a copy, where there is room, and another's is kept.
		{File: context, Old: "copied = make([]transport.Property, 0, len(m.Properties)+2)", New: "copied = m.Properties[:0]",
			Test: "./observe/otel/oteltrace -run TestAMessageHasASpan|TestAForwarded"},
		{File: context, Old: "if remoteOf(m).IsValid() {", New: "if false {",
			Test: "./observe/otel/oteltrace -run TestAForwarded"},
		{File: context, Old: "size+more > transport.MaxMessageSize ||", New: "",
			Test: "./observe/otel/oteltrace -run TestNoRoom"},
		{File: context, Old: "size-len(m.Body)+more > mostProperties", New: "false",
			Test: "./observe/otel/oteltrace -run TestNoRoom"},
		{File: context, Old: "len(p[i].Name) == len(name) && strings.EqualFold(p[i].Name, name)", New: "p[i].Name == name",
			Test: "./observe/otel/oteltrace -run TestContextsOfPeers"},

		// Each message has its span, which ends once, in time.
		{File: client, Old: "if remote.IsValid() {\n\t\t\tkind", New: "if false {\n\t\t\tkind",
			Test: "./observe/otel/oteltrace -run TestAForwarded"},
		{File: message, Old: "m.span.End(trace.WithTimestamp(at))", New: "m.span.End()",
			Test: "./observe/otel/oteltrace -run TestASlowExporter"},
		{File: message, Old: "if t.waiting--; t.waiting == 0 {", New: "if t.waiting == 0 {",
			Test: "./observe/otel/oteltrace -run TestEndsWithout -timeout 20s"},
		{File: message, Old: "if len(m.attempts) == mostAttempts {", New: "if false {",
			Test: "./observe/otel/oteltrace -run TestManyAttempts"},

		// Attempts are reported if there were several, or one without an answer.
		{File: message, Old: "n > 1 || a.lost ||", New: "n > 1 ||", Test: "./observe/otel/oteltrace -run TestCloseWith"},
		{File: message, Old: "n > 1 || a.lost || a.err != nil && errfilter.Retryable(a.err)",
			New:  "n > 1 || a.lost || errfilter.Retryable(a.err) || true",
			Test: "./observe/otel/oteltrace -run TestAMessageHasASpan"},
		{File: message, Old: "before = span.SpanContext()", New: "",
			Test: "./observe/otel/oteltrace -run TestResends"},
		{File: sessions, Old: "m.answered(now, err, true)", New: "_, _ = m, now",
			Test: "./observe/otel/oteltrace -run TestResends"},
		{File: sessions, Old: "if p, ok := inner.(transport.Progressor); ok {",
			New:  "if p, ok := inner.(transport.Progressor); ok && false {",
			Test: "./observe/otel/oteltrace -run TestOptionalAbilities"},
		{File: sessions, Old: "s.twin = twinned.TwinNumber()", New: "_ = twinned",
			Test: "./observe/otel/oteltrace -run TestOptionalAbilities"},

		// A handler continues the trace of its message.
		{File: handlers, Old: "ctx = trace.ContextWithRemoteSpanContext(ctx, remote)", New: "",
			Test: "./observe/otel/oteltrace -run TestAHandlerContinues"},
		{File: handlers, Old: "err = handle(ctx, m)", New: "err = handle(context.Background(), m)",
			Test: "./observe/otel/oteltrace -run TestAHandlerContinues"},

		// The watcher of results gets each once, in order.
		{File: "device/watched.go", Old: "\t\tr.watched = nil\n\t\tw.Err", New: "\t\tw.Err",
			Test: "./device -run TestWatchingAReceipt -timeout 20s"},
		{File: "device/watched.go", Old: "if r.state.Load() != receiptIdle {", New: "if false {",
			Test: "./device -run TestWatchingAReceipt -timeout 20s"},
		{File: "device/watched.go", Old: "q.last.next = w", New: "", Test: "./device -run TestResultsOfWatched"},
	}
}
