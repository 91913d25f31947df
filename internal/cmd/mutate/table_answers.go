package main

func init() {
	tables["answers"] = []mutation{
		{
			File: "internal/answers/conn.go",
			Old:  "c.err == nil && c.next {",
			New:  "c.err == nil {",
			Test: "./internal/answers -run TestAnEarlyAnswer",
		},
		{
			File: "internal/answers/conn.go",
			Old:  "if ours > 0 && refused == ErrUnasked {",
			New:  "if false {",
			Test: "./internal/answers -run TestBytesBehindAnAnswer",
		},
		{
			File: "internal/answers/frame.go",
			Old:  "f.begin(f.bare)",
			New:  "f.end()",
			Test: "./internal/answers -run FuzzAnswers",
		},
		{
			File: "internal/answers/head.go",
			Old:  "{r.StatusCode, r.Body == http.NoBody,",
			New:  "{r.StatusCode, r.ContentLength == 0,",
			Test: "./internal/answers -run FuzzAnswers",
		},
		{
			File: "internal/answers/head.go",
			Old:  " || h.status == http.StatusNotModified\n",
			New:  "\n",
			Test: "./internal/answers -run FuzzAnswers",
		},
		{
			File: "internal/answers/head.go",
			Old:  " || !plainText(code) {",
			New:  " {",
			Test: "./internal/answers -run FuzzAnswers",
		},
		{
			File: "internal/answers/head.go",
			Old:  "!plainName(name) || !plainText(value) {",
			New:  "!plainName(name) {",
			Test: "./internal/answers -run FuzzAnswers",
		},
		{
			File: "internal/answers/head.go",
			Old:  "!plainName(name) || !plainText(value) {",
			New:  "!plainText(value) {",
			Test: "./internal/answers -run FuzzAnswers",
		},
		{
			File: "internal/answers/head.go",
			Old:  "\t\t\tif framed {\n",
			New:  "\t\t\tif framed && length {\n",
			Test: "./internal/answers -run FuzzAnswers",
		},
		{
			File: "internal/answers/head.go",
			Old:  "h, ok = readPlain(head); ok {",
			New:  "h, ok = readPlain(nil); ok {",
			Test: "./internal/answers -run TestAnOrdinaryAnswerAllocatesNothing",
		},
		{
			File: "internal/answers/frame.go",
			Old:  "if (b == '\\n') != (before == '\\r') {",
			New:  "if b != '\\n' && before == '\\r' {",
			Test: "./internal/answers -run TestChunksAreReadStrictly",
		},
		{
			File: "transport/http/link.go",
			Old:  "peer = l.answers.TLS()",
			New:  "_ = l.answers",
			Test: "./transport/http -run TestWhatTLSSays",
		},
		{
			File: "transport/http/errors.go",
			Old:  "errors.Is(err, answers.ErrUnasked) || ",
			New:  "errors.Is(err, answers.ErrLongHead) || ",
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
