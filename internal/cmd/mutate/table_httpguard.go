package main

func init() {
	tables["httpguard"] = []mutation{
		{
			File: "internal/httpguard/conn.go",
			Old:  "c.err == nil && c.next {",
			New:  "c.err == nil {",
			Test: "./internal/httpguard -run TestAnEarlyAnswer",
		},
		{
			File: "internal/httpguard/conn.go",
			Old:  "if own > 0 && refused == ErrUnsolicited {",
			New:  "if false {",
			Test: "./internal/httpguard -run TestBytesBehindAnAnswer",
		},
		{
			File: "internal/httpguard/frame.go",
			Old:  "f.begin(f.noBody)",
			New:  "f.end()",
			Test: "./internal/httpguard -run FuzzAnswers",
		},
		{
			File: "internal/httpguard/head.go",
			Old:  "{r.StatusCode, r.Body == http.NoBody,",
			New:  "{r.StatusCode, r.ContentLength == 0,",
			Test: "./internal/httpguard -run FuzzAnswers",
		},
		{
			File: "internal/httpguard/head.go",
			Old:  " || h.status == http.StatusNotModified\n",
			New:  "\n",
			Test: "./internal/httpguard -run FuzzAnswers",
		},
		{
			File: "internal/httpguard/head.go",
			Old:  " || !plainText(code) {",
			New:  " {",
			Test: "./internal/httpguard -run FuzzAnswers",
		},
		{
			File: "internal/httpguard/head.go",
			Old:  "!plainName(name) || !plainText(value) {",
			New:  "!plainName(name) {",
			Test: "./internal/httpguard -run FuzzAnswers",
		},
		{
			File: "internal/httpguard/head.go",
			Old:  "!plainName(name) || !plainText(value) {",
			New:  "!plainText(value) {",
			Test: "./internal/httpguard -run FuzzAnswers",
		},
		{
			File: "internal/httpguard/head.go",
			Old:  "\t\t\tif framed {\n",
			New:  "\t\t\tif framed && length {\n",
			Test: "./internal/httpguard -run FuzzAnswers",
		},
		{
			File: "internal/httpguard/head.go",
			Old:  "h, ok = readPlain(head); ok {",
			New:  "h, ok = readPlain(nil); ok {",
			Test: "./internal/httpguard -run TestAnOrdinaryAnswerAllocatesNothing",
		},
		{
			File: "internal/httpguard/frame.go",
			Old:  "if (b == '\\n') != (before == '\\r') {",
			New:  "if b != '\\n' && before == '\\r' {",
			Test: "./internal/httpguard -run TestChunksAreReadStrictly",
		},
		{
			File: "internal/hubconn/conn.go",
			Old:  "peer = l.guard.TLS()",
			New:  "_ = l.guard",
			Test: "./transport/http -run TestTLSAlertsAreKnownAtDial",
		},
		{
			File: "internal/hubconn/protocol.go",
			Old:  "errors.Is(err, httpguard.ErrUnsolicited) || ",
			New:  "errors.Is(err, httpguard.ErrLongHead) || ",
			Test: "./transport/http -run TestAPeerThatSpeaksFirst",
		},
		{
			File: "fileupload/request.go",
			Old:  "conn.TLS()}",
			New:  "nil}",
			Test: "./fileupload -run TestAnUnsetClockIsReplacedByThatOfAVerifiedHub",
		},
	}
}
