package main

func init() {
	const (
		registry = "testbroker/internal/hub/registry.go"
		box      = "testbroker/internal/hub/box.go"
		web      = "testbroker/internal/web/conn.go"
		blobs    = "testbroker/internal/blobfront/operation.go"

		byDevice = "./testbroker/internal/hub -run TestTablesByDevice"
		faults   = "./testbroker -run TestFaultsOfUploads"
	)
	tables["registry"] = []mutation{
		{File: registry, Old: "if delete(h.modules[id.Device], id.Module);", New: "if", Test: byDevice},
		{File: registry, Old: "if r.times[old]--; r.times[old] == 0 {", New: "if r.times[old]--; true {",
			Test: "./testbroker/internal/hub -run TestTheLastRemoval"},
		{File: registry, Old: "	r.times[id]++\n", New: "", Test: byDevice},
		{File: registry, Old: "	h.modules[id.Device][id.Module] = struct{}{}\n", New: "", Test: byDevice},
		{File: box, Old: "	if len(of) == 0 {\n		delete(h.queues, id.Device)", New: "	if false {", Test: byDevice},
		{File: web, Old: "	a.C.Candidate(id)\n", New: "", Test: "./testbroker -run TestConnectionsOverHTTPByDevice"},
	}
	tables["blobfaults"] = []mutation{
		{File: blobs, Old: "return r.URL.Query().Get(\"si\") != \"\" }", New: "return true }", Test: faults},
		{File: blobs, Old: "q.Query.Get(\"restype\")+\" \"+", New: "\" \"+", Test: faults},
		{File: blobs, Old: "if byUploadURI(q.Hub, q.Request) {", New: "if true {", Test: faults},
		{File: "testbroker/internal/web/route.go", Old: "k >= fault.RouteServiceMessage",
			New: "k == fault.RouteServiceMessage", Test: faults},
	}
}
