package main

func init() {
	const (
		client  = "observe/otel/oteltrace/client.go"
		message = "observe/otel/oteltrace/message.go"
	)
	tables["trace limits"] = []mutation{
		// An answer that comes after the end of its span ends nothing else.
		{File: message, Old: "m.finished, m.attempts = true, nil", New: "m.attempts = nil",
			Test: "./observe/otel/oteltrace -run TestAnAttemptThatEnds"},

		// The number of open spans is limited, each returns its place, and none keeps its message.
		{File: client, Old: "if t.open.Add(1) > t.most {", New: "if t.open.Add(1) < 0 {",
			Test: "./observe/otel/oteltrace -run TestTheNumberOfOpenSpans"},
		{File: client, Old: "return Inject(ctx, m), nil", New: "return m, nil",
			Test: "./observe/otel/oteltrace -run TestTheNumberOfOpenSpans"},
		{File: client, Old: "if record == nil {", New: "if false {",
			Test: "./observe/otel/oteltrace -run TestSpansThatAreNotRecorded"},
		{File: message, Old: "t.open.Add(-1)", New: "",
			Test: "./observe/otel/oteltrace -run TestTheNumberOfOpenSpans"},
		{File: client, Old: "record.watched.Value = record",
			New:  "record.watched.Value = record\n\tcontext.AfterFunc(ctx, func() { _ = copied })",
			Test: "./observe/otel/oteltrace -run TestResultsThatWait"},
	}
}
