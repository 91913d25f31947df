package main

func init() {
	tables["ends"] = []mutation{
		// An upload whose context ended can be retried.
		{File: "internal/hubretry/ended.go", Old: "\t\te.Kind, e.Err = transport.Cancelled,",
			New:  "\t\te.Kind, e.Err = transport.Timeout,",
			Test: "./fileupload -run TestAnUploadWhoseContextEndsSaysSo"},
		// Messages wait for ever, though there is a handler again.
		{File: "device/inbox.go", Old: "\tb.startLocked()\n\tb.mu.Unlock()\n\tc.poke()", New: "\tb.mu.Unlock()\n\tc.poke()",
			Test: "./device -run TestMessagesWaitForTheNextHandler"},
		// A PUBACK resolves a message that Send has not written.
		{File: "transport/mqtt/lean/session.go", Old: "\t\tif ours {", New: "\t\tif ours || id > 0 {",
			Test: "./transport/mqtt/lean -run TestAPubackForAMessageThatIsNotWritten"},
		{File: "transport/mqtt/publication.go", Old: "\treturn ours\n", New: "\treturn true\n",
			Test: "./transport/mqtt -run TestAPubackForAMessageThatIsNotWritten"},
		// Close hides the failure of the mark.
		{File: "outbox/close.go", Old: "failures = append(failures, closing(\"the mark\", q.syncMark()))",
			New:  "_ = q.syncMark()",
			Test: "./outbox -run TestCloseReportsEveryFailure"},
	}
}
