package main

func init() {
	const (
		store    = "testbroker/internal/hub/job.go"
		running  = "testbroker/internal/hub/jobrun.go"
		document = "testbroker/internal/servicefront/job.go"
		twin     = "testbroker/internal/hub/digitaltwin.go"
		command  = "testbroker/internal/servicefront/digitaltwin.go"
		patch    = "testbroker/internal/servicefront/jsonpatch.go"

		notice    = "testbroker/internal/hub/digitaltwinnotice.go"
		changes   = "./testbroker -run TestNoticesOfDigitalTwins"
		updates   = "./testbroker -run TestAJobChangesTwins"
		calls     = "./testbroker -run TestAJobCallsMethods"
		scheduled = "./testbroker -run TestScheduledJobsStartInTime"
		limit     = "./testbroker -run TestAJobHasATimeLimit"
		bounded   = "./testbroker -run TestJobsAreBounded"
		refusals  = "./testbroker -run TestBadJobsAreRefused"
		shows     = "./testbroker -run TestADigitalTwinShows"
		patches   = "./testbroker -run TestAJSONPatchChanges"
		commands  = "./testbroker -run TestCommandsAreMethods"
	)
	tables["job"] = []mutation{
		{File: store, Old: "if r.Start.After(j.Created) {", New: "if false {", Test: scheduled},
		{File: store, Old: "if active >= maxActiveJobs {", New: "if false {", Test: bounded},
		{File: store, Old: "if other.ID == j.ID {", New: "if false {", Test: bounded},
		{File: store, Old: "if states > s.keep &&", New: "if false &&", Test: bounded},
		{File: store, Old: "if err := checkTree(r.Update.Desired);", New: "if err := checkTree(nil);", Test: refusals},
		{File: store, Old: "if err := checkTree(r.Update.Tags);", New: "if err := checkTree(nil);", Test: refusals},
		{File: store, Old: "if !writable(r.Start) {", New: "if false {", Test: refusals},
		{File: store, Old: "return slices.Contains(ended, j) })", New: "return true })",
			Test: "./testbroker/internal/hub -run AddedDuringAReset"},
		{File: running, Old: "range min(jobWorkers, len(devices)) {", New: "range len(devices) {", Test: limit},
		{File: running, Old: "case errors.Is(cause, errJobTime):", New: "case false:", Test: limit},
		{File: running, Old: "case errors.Is(result.Err, errJobCancelled),", New: "case false,", Test: limit},
		{File: running, Old: "pause(ctx, j.Start.Sub(h.Now()))", New: "pause(ctx, 0)", Test: scheduled},
		{File: document, Old: "target.From() == query.Jobs {", New: "false {", Test: refusals},
		{File: document, Old: "text := \"jobs\\n\" + kind + \"\\n\" + status", New: "text := \"jobs\"", Test: scheduled},
		{File: document, Old: "Etag: strings.Trim(d.ETag, `\"`)", New: "Etag: \"\"", Test: updates},
		{File: "testbroker/internal/servicefront/devicejob.go", Old: "e.Name, \"description\"",
			New: "e.Message, \"description\"", Test: calls},
		{File: twin, Old: "ack[\"ac\"] != nil && ack[\"av\"] != nil {", New: "ok {", Test: shows},
		{File: notice, Old: "isShownComponent(old) && isShownComponent(now):", New: "false:", Test: changes},
		{File: notice, Old: "case reflect.DeepEqual(old, now):", New: "case reflect.DeepEqual(old, 0):", Test: changes},
		{File: notice, Old: "if len(steps) > 0 {", New: "if true {", Test: changes},
		{File: notice, Old: "pointerText.Replace(name)", New: "name", Test: changes},
		{File: twin, Old: "case IsComponent(v):", New: "case v == nil:", Test: shows},
		{File: command, Old: "c + \"*\" + d.MethodName", New: "c + d.MethodName", Test: commands},
		{File: patch, Old: "if !ok || len(path) > most {", New: "if !ok {", Test: patches},
		{File: patch, Old: "segment[0] == '$' ||", New: "", Test: patches},
		{File: patch, Old: "if !has(desired, path) {", New: "if false {", Test: patches},
		{File: "testbroker/internal/hub/configure.go", Old: "etag != \"*\" && etag != v.Etag {", New: "false {",
			Test: patches},
	}
}
