package main

func init() {
	tables["dpsservice"] = []mutation{
		{
			File: "testbroker/internal/dpshttp/bulk.go",
			Old:  "return replace(s, d, group, strings.Trim(d.ETag, `\"`))",
			New:  "_ = d.ETag\n		return replace(s, d, group, \"*\")",
			Test: "./testbroker -run TestBulkEnrollments",
		},
		{
			File: "testbroker/internal/dpshttp/bulk.go",
			Old:  "		if err == nil && e.Group != group {\n",
			New:  "		if err == nil && e.Group != group && false {\n",
			Test: "./testbroker -run TestBulkEnrollments",
		},
		{
			File: "testbroker/internal/dps/operation.go",
			Old:  "	case etag != \"*\" && etag != etagOf(rec.changes):\n",
			New:  "	case etag == \"\":\n",
			Test: "./testbroker -run TestStatesOfRegistrationsForABackEnd",
		},
		{
			File: "testbroker/internal/dps/service.go",
			Old:  "		if find(all, h.Host) != nil {\n",
			New:  "		if find(s.hubs, h.Host) != nil {\n",
			Test: "./testbroker -run TestErrorsOfLinkNameTheHub",
		},
		{
			File: "testbroker/internal/dpsamqp/link.go",
			Old:  "	429: \"com.microsoft:device-container-throttled\",\n",
			New:  "	429: wire.ResourceLimitExceeded,\n",
			Test: "./testbroker -run TestThrottledRegistrationOverAMQP",
		},
		{
			File: "testbroker/internal/dpsmqtt/front.go",
			Old:  "			c.hear, c.qos = true, min(s.Qos, 1)\n",
			New:  "			c.hear, c.qos = true, 1\n",
			Test: "./testbroker -run TestOtherLevelsOfQoSAtTheDPS",
		},
		{
			File: "cmd/testhub/run.go",
			Old:  "slices.Concat(hub.CAPEM(), d.authorities())",
			New:  "slices.Concat(hub.CAPEM())",
			Test: "./cmd/testhub -run TestLinesAboutProvisioning",
		},
	}
}
