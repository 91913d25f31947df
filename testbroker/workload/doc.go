// Package workload is the workload API of an edge runtime, for tests of modules: it signs tokens
// with the keys of a [testbroker.Hub], and hands out the trust bundle and certificates.
//
//	hub, err := testbroker.New(nil)
//	...
//	_, err = hub.AddDevice("edge-1")
//	_, err = hub.AddModule("edge-1", "filter")
//	daemon, err := workload.New(hub, nil)
//	...
//	defer daemon.Close()
//	_, err = daemon.Listen("unix", "/run/test/workload.sock")
//	environment := daemon.Environment("edge-1", "filter") // for the module's process
//
// A client in the test's own process needs no socket: [Server.Dial] connects in memory. With it the
// server works in a testing/synctest bubble too; it must then be made and closed in the bubble.
//
// The API is that of the runtime's daemon: HTTP/1.1 with JSON, and an api-version in each request.
//
//	POST /modules/{name}/genid/{generation}/sign
//	POST /modules/{name}/genid/{generation}/encrypt
//	POST /modules/{name}/genid/{generation}/decrypt
//	POST /modules/{name}/genid/{generation}/certificate/server
//	POST /modules/{name}/certificate/identity
//	GET  /trust-bundle
//	GET  /manifest-trust-bundle
//	GET  /modules
//
// Errors are {"message": "..."}: 400 for a request that is wrong, 404 for an unknown module or a
// generation id of an earlier one, 405 and 413 as in HTTP.
//
// The daemon of a runtime serves one device, and recognises a module by the process id at the other
// end of its socket. This server serves the modules of all devices unless [Options.Device] names
// one, tells modules of the same name apart by their generation ids, and lets every client act for
// every module.
//
// [Server.Inject] declares faults, [Server.Count] and [Server.Log] tell what clients have called.
// All methods are safe for concurrent use.
package workload
