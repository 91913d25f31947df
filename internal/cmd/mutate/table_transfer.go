package main

func init() {
	const (
		state    = "testbroker/internal/hub/transfer.go"
		document = "testbroker/internal/servicefront/transfer.go"
		out      = "testbroker/internal/servicefront/export.go"
		in       = "testbroker/internal/servicefront/import.go"

		one      = "./testbroker/internal/hub -run TestOneTransferRuns"
		ends     = "./testbroker/internal/hub -run TestTheHubEndsItsTransfers"
		exports  = "./testbroker -run TestAnExportHasAllDevices"
		imports  = "./testbroker -run TestAnImportHasModes"
		fails    = "./testbroker -run TestTransfersThatFail"
		others   = "./testbroker -run TestContainersOfOthers"
		identity = "./testbroker -run TestAHubHasAnIdentity"
	)
	tables["transfer"] = []mutation{
		{File: state, Old: "n > 0 && s.all[n-1].Ended.IsZero() {", New: "n < 0 {", Test: one},
		{File: state, Old: "if cause := context.Cause(ctx); cause != nil {", New: "if cause := err; cause != nil {",
			Test: one},
		{File: state, Old: "if len(s.all) > maxTransfers {", New: "if false {", Test: ends},
		{File: state, Old: "\t\tt.Run = nil // it holds what it has read and written\n", New: "", Test: one},
		{File: "testbroker/internal/hub/reset.go", Old: "\th.transfers.clear()\n\th.jobs.clear()\n\n\th.Faults.clear()\n",
			New:  "\th.Faults.clear()\n\th.log.clear()\n\th.transfers.clear()\n\th.jobs.clear()\n",
			Test: "./testbroker/internal/hub -run TestAResetLeaves"},
		{File: document, Old: "byIdentity && !q.Hub.Knows(u.Host):", New: "false:", Test: identity},
		{File: document, Old: "!strings.Contains(granted, right):", New: "granted == \"\":", Test: others},
		{File: document, Old: "if q.Hub.BlobStore(name) == nil {", New: "if false {", Test: others},
		{File: document, Old: "+ u.Host + u.EscapedPath(),", New: "+ u.Host + u.EscapedPath() + u.RawQuery,", Test: fails},
		{File: out, Old: "if excludeKeys && d.Authentication.Type == \"sas\" {", New: "if false {", Test: exports},
		{File: out, Old: "writable(v.Desired.Document())", New: "v.Reported.Document()", Test: exports},
		{File: out, Old: "content = bytes.Clone(content) //", New: "content = content[:len(content):cap(content)] //",
			Test: "./testbroker/internal/servicefront -run TestAStoredFile"},
		{File: in, Old: "if err = errors.Join(err, warning);", New: "if _, err = warning, err;", Test: imports},
		{File: in, Old: "m.errors.Len() == 0 && !old {", New: "m.errors.Len() == 0 && (old || !old) {", Test: imports},
		{File: in, Old: "lines.Buffer(nil, maxImportLine)", New: "lines.Buffer(nil, 2*maxImportLine)", Test: fails},
	}
}
