package hubdata

// A Store keeps the state of one hub, or of one provisioning service, between runs. The hub calls
// Load once, in testbroker.New, and then Save from one goroutine at a time. Records hold keys of
// devices and of the certificate authority, so a store is as secret as those.
//
// These survive: the certificate authority, the registry, access policies, twins, waiting messages
// to devices and to inputs with their deliveries, unsettled feedback, the message log with its
// sequence numbers, configurations, containers with their files and the key of the storage account,
// and enrollments and registrations. The hub acknowledges a message, a change of a twin and a
// change of the registry only when the record is in the store. Outcomes of delivered messages and
// of feedback are saved soon after they arrive, so what was settled just before an abrupt end may
// be delivered again.
//
// Back ends get an event when it is in the store. Events keep their numbers as long as
// [EventOptions.Sources] is empty: events other than telemetry are not kept.
//
// These end with the hub: jobs, connections, faults, method calls, uploads with their files and
// notifications, blocks that no list has made a file of, requests for certificates, the store of an
// edge gateway, and the logs of twin requests and of messages to devices that have reached their
// end.
type Store interface {
	// Load calls each for every record, in the order of their tables and keys. It returns the first
	// error of each, or its own.
	Load(each func(Record) error) error
	// Save applies changes in their order, all or none. Once it has returned nil they must survive.
	// After an error the hub calls it no more and acknowledges nothing that it cannot save, so the
	// owner of the store reports the error and closes the hub.
	Save(changes []Record) error
}
