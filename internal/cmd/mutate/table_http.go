package main

func init() {
	tables["http"] = []mutation{
		{
			File: "transport/http/c2d.go",
			Old:  "now.Add(max(refused.after, e.pause))",
			New:  "now.Add(e.pause)",
			Test: "./transport/http -run TestAFailedSettlementIsRetried",
		},
		{
			File: "transport/http/c2d.go",
			Old:  "e.at.Sub(e.since) < lockTime {",
			New:  "e.at.Sub(e.since) < 2*lockTime {",
			Test: "./transport/http -run TestAFailedSettlementIsRetried",
		},
		{
			File: "transport/http/session.go",
			Old:  "time.AfterFunc(settleLimit, s.cancelLate)",
			New:  "time.AfterFunc(0, s.cancelLate)",
			Test: "./transport/http -run TestClose",
		},
		{
			File: "transport/http/session.go",
			Old:  "time.AfterFunc(settleLimit, s.cancelLate)",
			New:  "time.AfterFunc(closeLimit, s.cancelLate)",
			Test: "./transport/http -run TestClose",
		},
		{
			File: "transport/http/session.go",
			Old:  "time.AfterFunc(closeLimit, s.cut)",
			New:  "time.AfterFunc(time.Hour, s.cut)",
			Test: "./transport/http -run TestClose",
		},
		{
			File: "transport/http/session.go",
			Old:  "string(percent.Append(nil, token))",
			New:  "token",
			Test: "./transport/http -run TestLockTokensAreEscaped",
		},
		{
			File: "transport/http/link.go",
			Old:  "\t\tdefer p.revoke()\n",
			New:  "",
			Test: "./transport/http -race -count=50 -run TestABodyIsNotReadAfterItsAnswer",
		},
	}
}
