package main

func init() {
	const guard = "./cmd/testhub -run TestTheGuard"
	tables["testhubpage"] = []mutation{
		{
			File: "cmd/testhub/guard.go",
			Old:  `origins[0] != "http://"+r.Host`,
			New:  "false",
			Test: guard,
		},
		{
			File: "cmd/testhub/guard.go",
			Old:  "if !g.ownSite(r) {",
			New:  "if false {",
			Test: guard,
		},
		{
			File: "cmd/testhub/guard.go",
			Old:  `if g.token == "" && !isLoopback(hostOf(r)) {`,
			New:  "if false {",
			Test: guard,
		},
		{
			File: "cmd/testhub/guard.go",
			Old:  " == 1 && ok",
			New:  " == 1 || ok",
			Test: guard,
		},
		{
			File: "cmd/testhub/guard.go",
			Old:  ` && r.Header.Get("Sec-Fetch-Dest") == "document"`,
			New:  "",
			Test: guard,
		},
		{
			File: "cmd/testhub/feed.go",
			Old:  "first = max(n, f.oldestLocked())",
			New:  "first = n",
			Test: "./cmd/testhub -run TestAFeedKeeps",
		},
		{
			File: "cmd/testhub/output.go",
			Old:  "if len(s) <= maxText {",
			New:  "if true {",
			Test: "./cmd/testhub -run TextsOfALine",
		},
		{
			File: "testbroker/internal/hub/unserved.go",
			Old:  "case silent && !greeted:",
			New:  "case false:",
			Test: "./testbroker -run SaysNothing",
		},
		{
			File: "testbroker/internal/hub/unserved.go",
			Old:  "HungUp(cause) && !c.heard.Load()",
			New:  "HungUp(cause)",
			Test: "./testbroker -run StopsInTheMiddle",
		},
		{
			File: "testbroker/internal/hub/unserved.go",
			Old:  "case greeted && !shaken && endedByClient(cause):",
			New:  "case false:",
			Test: "./testbroker -run DoesNotTrust",
		},
		{
			File: "cmd/testhub/follow.go",
			Old:  "if c.feed.followers.Add(1) > maxFollowers {",
			New:  "if c.feed.followers.Add(1) > 1<<30 {",
			Test: "./cmd/testhub -run TestEventsAreBounded",
		},
		{
			File: "cmd/testhub/follow.go",
			Old:  "run == f.feed.run && n < end",
			New:  "run != \"\" && n < end",
			Test: "./cmd/testhub -run TestEventsContinue",
		},
		{
			File: "cmd/testhub/token.go",
			Old:  "!isLoopback(host) && s.token",
			New:  "isLoopback(host) && s.token",
			Test: "./cmd/testhub -run TestAControlAPI",
		},
		{
			File: "cmd/testhub/messages.go",
			Old:  "for !utf8.RuneStart((*m.Body)[end]) {",
			New:  "for false {",
			Test: "./cmd/testhub -run TestBodiesAreCut",
		},
		{
			File: "cmd/testhub/twin.go",
			Old:  "change.ETag = strings.Trim",
			New:  "_ = strings.Trim",
			Test: "./cmd/testhub -run TestTwinChangesWithAnETag",
		},
	}
}
