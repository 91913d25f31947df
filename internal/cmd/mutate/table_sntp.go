package main

func init() {
	tables["sntp"] = []mutation{
		{File: "sntp/answer.go", Old: " || binary.BigEndian.Uint64(p[atOriginate:]) != nonce", New: "",
			Test: "./sntp -run TestEveryFieldOfAnAnswerIsChecked"},
		{File: "sntp/answer.go", Old: "p[0]>>6 == unsynched || ", New: "",
			Test: "./sntp -run TestEveryFieldOfAnAnswerIsChecked"},
		{File: "sntp/answer.go", Old: "sent == 0 || held > maxHeld", New: "sent == 0",
			Test: "./sntp -run TestEveryFieldOfAnAnswerIsChecked"},
		{File: "sntp/answer.go", Old: " && earliest.Implausible(t.Add(-plausibleFor))", New: "",
			Test: "./sntp -run TestSecondsBeginAgainIn2036"},
		{File: "sntp/answer.go", Old: "era < 2", New: "era < 1", Test: "./sntp -run TestSecondsBeginAgainIn2036"},
		{File: "sntp/ask.go", Old: "trip > c.opt.MaxRoundTrip || a.held > trip", New: "trip > c.opt.MaxRoundTrip",
			Test: "./sntp -run TestAnAnswerThatIsNotAcceptedLeavesTheClock"},
		{File: "sntp/ask.go", Old: "			continue\n", New: "			break\n",
			Test: "./sntp -run TestStrayDatagramsAreIgnored"},
		{File: "sntp/sync.go", Old: "way := (report.RoundTrip - a.held) / 2", New: "way := report.RoundTrip - a.held",
			Test: "./sntp -run TestTheClockIsSetToTheMiddleOfTheRoundTrip"},
		{File: "sntp/sync.go", Old: "		s.next = c.opt.Now().Add(s.spacing)\n", New: "",
			Test: "./sntp -run TestOneServerIsNotAskedTooOften"},
		{File: "sntp/sync.go", Old: "		s.denied = true\n", New: "",
			Test: "./sntp -run TestAServerThatDeniesIsNotAskedForADay"},
		{File: "sntp/sync.go", Old: "min(2*s.spacing, maxSpacing)", New: "2 * s.spacing",
			Test: "./sntp -run TestAServerGetsFewerRequestsWhenItAsks"},
		{File: "sntp/sync.go", Old: "o.voted && ", New: "", Test: "./sntp -run TestAServerThatHasNotAnsweredHasNoVote"},
	}
}
