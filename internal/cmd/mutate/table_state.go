package main

func init() {
	const (
		hub   = "./testbroker -run Survive|AKill|StoreThatFails|RecordThatMakes"
		kill  = "./cmd/testhub -run State|AResetSurvives|DeclaredDevices"
		kept  = "./testbroker/internal/hub -run Saved|AfterARestart"
		files = "./cmd/testhub/store"
	)
	tables["state"] = []mutation{
		// Messages are acknowledged before they are in the store.
		{File: "testbroker/internal/mqttfront/commit.go", Old: "\t\tc.Hub.Saved()\n", New: "", Test: hub},
		{File: "testbroker/internal/mqttfront/puback.go", Old: "\t\tc.Hub.Saved()\n", New: "",
			Test: "./testbroker -run PubacksThatWait"},
		// They wait for the store one by one, overtake one another, or grow without limit.
		{File: "testbroker/internal/mqttfront/read.go", Old: "\t\t\tc.commit()\n", New: "\t\t\tc.flush()\n", Test: hub},
		{File: "testbroker/internal/mqttfront/puback.go", Old: "\tc.commits.wait()\n", New: "",
			Test: "./testbroker -run PubacksThatWait"},
		{File: "testbroker/internal/mqttfront/commit.go", Old: "if far {", New: "if far && false {",
			Test: "./testbroker -run AheadOfTheStore"},
		// A failing store lets connections go on.
		{File: "testbroker/internal/hub/saver.go", Old: "\t\tc.CutFor(err)\n", New: "\t\t_ = c\n", Test: hub},
		// Touched records of the write in progress do not make a caller wait.
		{File: "testbroker/internal/hub/saver.go", Old: "if len(s.touched)+len(s.cleared) > 0 {", New: "if false {",
			Test: hub},
		// A reset stays in memory.
		{File: "testbroker/internal/hub/reset.go", Old: "\th.ClearTables(tableMessages, ", New: "\th.ClearTables(",
			Test: kill},
		// A reader gets events that a kill takes away.
		{File: "testbroker/internal/hub/eventlog.go", Old: "\tif changed == nil {\n\t\th.Saved()\n\t}\n",
			New: "", Test: kept},
		// A device gets the twin and the messages of a removed one.
		{File: "testbroker/internal/hub/keepregistry.go", Old: "if h.Registered(id) {", New: "if true {",
			Test: "./testbroker -run Inherits"},
		// Files, their metadata, containers, the account's key and configurations do not survive, or
		// deleted ones do.
		{File: "testbroker/internal/hub/blobcontainer.go", Old: "if b.tag() != tag {", New: "if tag == \"\" {", Test: hub},
		{File: "testbroker/internal/hub/blobcontainer.go", Old: "\tdelete(c.blobs, name)\n\tc.touchFile(name)\n",
			New: "\tdelete(c.blobs, name)\n", Test: hub},
		{File: "testbroker/internal/hub/keepstorage.go", Old: "\tcopy(h.UploadTable.Store.Keys.key[:], key)\n", New: "",
			Test: hub},
		{File: "testbroker/internal/hub/keepstorage.go", Old: "\tc.tags.pass(file.ETag)\n", New: "",
			Test: "./testbroker -run TestTagsDiffer"},
		{File: "testbroker/internal/hub/keepstorage.go", Old: "if len(content) > 0 {", New: "if false {", Test: hub},
		{File: "testbroker/internal/hub/configuration.go", Old: "max(s.changes, c.Changes)", New: "s.changes", Test: hub},
		{File: "testbroker/internal/hub/configuration.go",
			Old: "\tdelete(s.all, id)\n\th.Touch(TableConfigurations, id)\n", New: "\tdelete(s.all, id)\n", Test: hub},
		{File: "testbroker/internal/servicefront/keepconfiguration.go", Old: "if c.ID != id {", New: "if false {", Test: hub},
		// An authority that no client trusts any more makes certificates.
		{File: "testbroker/internal/hub/certs.go", Old: "|| now.After(ca.NotAfter) {", New: "{",
			Test: "./cmd/testhub -run AnAuthorityThatCannotBe"},
		// Feedback of a restored message names no generation.
		{File: "testbroker/internal/hub/keepqueue.go", Old: ", generation: r.Generation}", New: "}", Test: kept},
		// A program that ends because its disk is full says nothing.
		{File: "cmd/testhub/run.go", Old: "errors.Join(failureOf(ctx), closed", New: "errors.Join(closed",
			Test: "./cmd/testhub -run DiskThatIsFull"},
		// A reset removes the devices of an earlier run.
		{File: "cmd/testhub/registry.go", Old: "if !slices.Contains(r.earlier, id) && ", New: "if ",
			Test: "./cmd/testhub -run AResetKeeps"},
		// A first start that was killed is damage.
		{File: "cmd/testhub/store/store.go", Old: "fresh = name == nil", New: "_ = name", Test: files},
		// A wrong value that only the hub knows is a failure.
		{File: "cmd/testhub/run.go", Old: "errors.AsType[misuse](err); wrong {",
			New: "errors.AsType[misuse](err); wrong && false {", Test: "./cmd/testhub -run ErrorsName"},
		// Forgotten messages stay in the store.
		{File: "testbroker/internal/hub/log.go", Old: "\tl.touch(old.Sequence)\n", New: "", Test: kill},
		// Sequence numbers begin anew.
		{File: "testbroker/internal/hub/keeplog.go", Old: "l.forgotten = sequence - 1", New: "l.forgotten = 0", Test: kill},
		// A change of a key in the file goes unnoticed.
		{File: "cmd/testhub/store/store.go", Old: "n = crc32.Update(n, castagnoli, append([]byte{0}, key...))",
			New: "_ = key", Test: files},
		// An empty file becomes a new state.
		{File: "cmd/testhub/store/store.go", Old: "info.Size() == 0", New: "info.Size() < 0", Test: kill},
		// A strict hub takes properties of any type.
		{File: "testbroker/internal/amqpfront/telemetry.go", Old: "if a.hub.AMQP.StrictTypes {", New: "if false {",
			Test: "./testbroker -run TypesOfTelemetry"},
		// A flag of the command line does not replace that of the file.
		{File: "cmd/testhub/config.go", Old: "if slices.Contains(given, name) {", New: "if false {",
			Test: "./cmd/testhub -run FlagsOfAFile"},
		// An address of the command line is replaced by one above 1024.
		{File: "cmd/testhub/dps.go", Old: " && slices.Contains(p.chosen, at.name)", New: "",
			Test: "./cmd/testhub -run AStartWithoutTheRight"},
		// A newer file is read.
		{File: "cmd/testhub/store/store.go", Old: "case n > format:", New: "case false:", Test: files},
	}
}
