package main

func init() {
	const (
		store    = "testbroker/internal/hub/configuration.go"
		content  = "testbroker/internal/hub/configurationcontent.go"
		apply    = "testbroker/internal/hub/configure.go"
		document = "testbroker/internal/servicefront/configuration.go"

		writes   = "./testbroker -run TestConfigurationsWriteTheTwinsOfTheirTarget"
		priority = "./testbroker -run TestTheConfigurationWithTheHighestPriorityWins"
		gateways = "./testbroker -run TestConfigurationsOfModulesAndGateways"
		etags    = "./testbroker -run TestConfigurationsHaveETags"
		refusals = "./testbroker -run TestBadConfigurationsAreRefused"
		room     = "./testbroker -run TestAConfigurationThatDoesNotFit"
		targets  = "./testbroker/internal/query -run Targets"
	)
	tables["configuration"] = []mutation{
		{File: store, Old: "case old == nil && len(s.all) >= maxConfigurations:", New: "case false:", Test: refusals},
		{File: store, Old: "case old != nil && etag == \"\":", New: "case false:", Test: etags},
		{File: store, Old: "etag != \"*\" && etag != old.ETag():", New: "false:", Test: etags},
		{File: store, Old: "!reflect.DeepEqual(c.Content, old.Content):", New: "!reflect.DeepEqual(c, c):", Test: etags},
		{File: store, Old: "if etag != \"*\" && etag != c.ETag() ||", New: "if false ||", Test: etags},
		{File: content, Old: "if len(used) > 1 {", New: "if false {", Test: refusals},
		{File: content, Old: "if member != nil {", New: "if true {", Test: writes},
		{File: content, Old: "if slices.Contains(s.Path, \"\") {", New: "if false {", Test: refusals},
		{File: content, Old: "len(s.Path) <= len(earlier.Path) &&", New: "len(s.Path) == len(earlier.Path) &&",
			Test: priority},
		{File: apply, Old: "cmp.Compare(a.Priority, b.Priority)", New: "cmp.Compare(b.Priority, a.Priority)",
			Test: priority},
		{File: apply, Old: "a.Created.Compare(b.Created)", New: "b.Created.Compare(a.Created)", Test: priority},
		{File: apply, Old: "c.Modules != (id.Module != \"\") ||", New: "", Test: gateways},
		{File: apply, Old: "c.Content.Modules != nil && !r.IoTEdge ||",
			New: "c.Content.Modules != nil && !r.IoTEdge && false ||", Test: gateways},
		{File: apply, Old: "\t\tif len(patch) == 0 {\n", New: "\t\tif false {\n", Test: writes},
		{File: apply, Old: "\t\treturn // the twin would be", New: "\t\t// the twin would be", Test: room},
		{File: "testbroker/internal/hub/twin.go", Old: "\th.announce(t)\n\th.reconfigure()\n", New: "\th.announce(t)\n",
			Test: writes},
		{File: document, Old: "if c.Content.Module != nil && !c.Modules ||", New: "if", Test: refusals},
		{File: document, Old: "if target.From() == query.Jobs {", New: "if false {", Test: refusals},
		{File: "testbroker/internal/query/parse.go", Old: "named && !where {", New: "false {", Test: targets},
	}
}
