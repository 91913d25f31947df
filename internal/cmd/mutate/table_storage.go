package main

func init() {
	const (
		containers = "testbroker/internal/hub/blobcontainer.go"
		signing    = "testbroker/internal/hub/blobsas.go"
		front      = "testbroker/internal/blobfront/operation.go"
		condition  = "testbroker/internal/blobfront/condition.go"
		sharedKey  = "testbroker/internal/blobfront/sharedkey.go"
		metadata   = "testbroker/internal/blobfront/metadata.go"
		read       = "testbroker/internal/blobfront/read.go"
		list       = "testbroker/internal/blobfront/container.go"
		index      = "testbroker/internal/hub/bloblist.go"
		property   = "testbroker/internal/blobfront/property.go"

		web        = "testbroker/internal/web/websocket.go"
		sockets    = "./testbroker -run WebSocket"
		keeps      = "./testbroker -run TestAContainerKeepsBlobs"
		conditions = "./testbroker -run TestConditionsDecide"
		pages      = "./testbroker -run TestAList"
		content    = "./testbroker -run TestPropertiesOfContent"
		signatures = "./testbroker -run TestSignaturesOfContainers"
		refusals   = "./testbroker -run TestTheStoreRefuses"
		bounds     = "./testbroker -run TestContainersAreBounded"
		blobs      = "./testbroker -run TestAContainerHasSoManyBlobs"
	)
	tables["websocket"] = []mutation{
		{File: web, Old: "\"/$servicebus/websocket/\": {eventsAMQP},", New: "", Test: sockets},
		{File: web, Old: "[]string{\"AMQPWSB10\", \"amqp\"}}", New: "[]string{\"AMQPWSB10\"}}", Test: sockets},
		{File: web, Old: "\"/$servicebus/websocket\":  {eventsAMQP},", New: "\"/$servicebus/websocket\": {webMQTT, webAMQP},",
			Test: sockets},
	}
	tables["storage"] = []mutation{
		{File: containers, Old: "case len(c.all) >= maxContainers:", New: "case false:", Test: bounds},
		{File: containers, Old: "of.used+of.reserved+n > maxContainerBytes {", New: "false {", Test: bounds},
		{File: containers, Old: "if c.of.used+size > maxContainerBytes {", New: "if false {", Test: bounds},
		{File: containers, Old: "c.of.used += b.cost(name) - before", New: "c.of.used += b.cost(name) + 0*before",
			Test: bounds},
		{File: containers, Old: "	c.of.used -= c.blobs[name].cost(name)\n", New: "", Test: bounds},
		{File: containers, Old: "if c.of.blobs >= maxContainerBlobs {", New: "if false {", Test: blobs},
		{File: containers, Old: "if !one.owners {", New: "if true {", Test: pages},
		{File: containers, Old: "c.all[name] != nil || name == Container:", New: "c.all[name] != nil:", Test: refusals},
		{File: index, Old: "case e.Name <= after:", New: "case e.Name < after:", Test: pages},
		{File: index, Old: "max(prefix, after)", New: "after", Test: pages},
		{File: index, Old: "!strings.HasPrefix(c.files[i+n], e.Name)", New: "n > 0", Test: pages},
		{File: containers, Old: "if i, listed := slices.BinarySearch(c.files, name); listed {", New: "if i := 0; false {",
			Test: pages},
		{File: containers, Old: "; b.file != nil && !listed {", New: "; !listed {", Test: pages},
		{File: property, Old: "if len(v) > maxProperty {", New: "if false {", Test: refusals},
		{File: property, Old: "v == \"\" && whole &&", New: "v == \"\" &&", Test: content},
		{File: property, Old: "if q.Query.Get(\"sig\") != \"\" {", New: "if true {", Test: content},
		{File: signing, Old: "case !good || now.Before(starts) ||", New: "case !good || starts.After(expires) ||",
			Test: signatures},
		{File: signing, Old: "case q.Get(\"sip\") != \"\" ||", New: "case", Test: signatures},
		{File: signing, Old: "good := q.Get(\"si\") == \"\" || k.good", New: "good := true || k.good", Test: signatures},
		{File: signing, Old: "q.Get(\"spr\") == \"https\" && !secure:", New: "false:", Test: signatures},
		{File: signing, Old: "{\"2020-12-06\", \"ses\"}", New: "{\"2018-11-09\", \"ses\"}", Test: signatures},
		{File: signing, Old: "if strings.Count(text, \"\\n\") != len(fields)-1 {", New: "if false {",
			Test: "./testbroker/internal/hub -run TestALineBreak"},
		{File: front, Old: "if !plainQuery(q.Query) {", New: "if false {", Test: "./testbroker -run TestASignedRequest"},
		{File: front, Old: "case !strings.ContainsAny(granted, rights):", New: "case false:", Test: signatures},
		{File: front, Old: "t.onlyNew = !strings.Contains(granted, \"w\")", New: "t.onlyNew = false", Test: signatures},
		{File: front, Old: "case q.Header.Get(\"x-ms-lease-id\") != \"\":", New: "case false:", Test: refusals},
		{File: front, Old: "!hub.IsXML(t.name):", New: "false:", Test: refusals},
		{File: sharedKey, Old: "q.Hub.Now().Sub(sent).Abs() > maxSkew ||", New: "sent.IsZero() ||",
			Test: refusals},
		{File: sharedKey, Old: "!hmac.Equal([]byte(signature), []byte(want))",
			New: "hmac.Equal([]byte(signature), []byte(want[1:]))", Test: refusals},
		{File: condition, Old: "case c.noneMatch == \"*\":", New: "case false:", Test: conditions},
		{File: condition, Old: "if c.match != \"\" {", New: "if false {", Test: conditions},
		{File: condition, Old: "strings.Trim(q.Header.Get(\"If-Match\"), `\"`)", New: "q.Header.Get(\"If-Match\")",
			Test: conditions},
		{File: condition, Old: "changed.After(c.unmodifiedS)", New: "false", Test: conditions},
		{File: metadata, Old: "case size > maxMetadata,", New: "case", Test: refusals},
		{File: metadata, Old: "case !metadataName.MatchString(name),", New: "case", Test: refusals},
		{File: read, Old: "if from < 0 || from >= size {", New: "if from < 0 {", Test: keeps},
		{File: list, Old: "if p.metadata {\n			b.Metadata", New: "if true {\n			b.Metadata", Test: pages},
	}
}
