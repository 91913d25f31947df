package main

func init() {
	tables["http"] = []mutation{
		{
			File: "transport/http/c2d.go",
			Old:  "now.Add(max(refused.after, e.delay))",
			New:  "now.Add(e.delay)",
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
			Old:  "time.AfterFunc(settleLimit, s.cancelSettling)",
			New:  "time.AfterFunc(0, s.cancelSettling)",
			Test: "./transport/http -run TestClose",
		},
		{
			File: "transport/http/session.go",
			Old:  "time.AfterFunc(settleLimit, s.cancelSettling)",
			New:  "time.AfterFunc(closeLimit, s.cancelSettling)",
			Test: "./transport/http -run TestClose",
		},
		{
			File: "transport/http/session.go",
			Old:  "time.AfterFunc(closeLimit, s.abort)",
			New:  "time.AfterFunc(time.Hour, s.abort)",
			Test: "./transport/http -run TestClose",
		},
		{
			File: "transport/http/session.go",
			Old:  "string(percent.Append(nil, token))",
			New:  "token",
			Test: "./transport/http -run TestLockTokensAreEscaped",
		},
		{
			File: "internal/hubconn/conn.go",
			Old:  "\t\tdefer p.revoke()\n",
			New:  "",
			Test: "./transport/http -race -count=50 -run TestABodyIsNotReadAfterItsAnswer",
		},

		// A batch that the client chose before it learned of a refusal.
		{File: "transport/http/telemetry.go", Old: "t.late || t.refusing || s.cfg.Refused != nil && s.cfg.Refused()",
			New: "t.late || t.refusing", Test: "./transport/http -run TestBatchesOnTheirWay"},
		{File: "transport/http/telemetry.go", Old: "t.late || t.refusing || s.cfg.Refused != nil && s.cfg.Refused()",
			New: "t.late || s.cfg.Refused != nil && s.cfg.Refused()", Test: "./transport/http -run TestBatchesOnTheirWay"},
		{File: "transport/http/telemetry.go", Old: "\t\tif late && t.transient != nil {", New: "\t\tif false && late {",
			Test: "./transport/http -run TestBatchesOnTheirWay"},
		{File: "transport/http/telemetry.go", Old: "\t\tt.transientCount = 0", New: "",
			Test: "./transport/http -run TestBatchesOnTheirWay"},
	}
}
