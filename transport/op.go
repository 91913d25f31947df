package transport

// Op is the operation during which an Error arose. Those from OpSubscribe on are also requests.
type Op uint8

const (
	OpNone Op = iota
	// OpDial, OpRun and OpSend are the operations of a Session.
	OpDial
	OpRun
	OpSend
	// OpClose and OpOpen are calls of the device client.
	OpOpen
	OpClose
	// OpRegister is a registration with the provisioning service.
	OpRegister
	// OpCall is another request to the provisioning service, such as for a software update.
	OpCall
	// OpSubscribe subscribes to the Features in Want; replied when the hub has granted all. A session
	// that learns later that the hub refuses them, or grants them, replies again with the same ID.
	// That reply is about all Features that the session was asked for.
	OpSubscribe
	// OpTwinGet and OpTwinPatch read the twin and change its reported part; replied.
	OpTwinGet
	OpTwinPatch
	// OpRenew renews the credentials in place; replied with the next Expires.
	OpRenew
	// OpPing keeps the connection alive; one-way.
	OpPing
	// OpRespond answers a method call. The answer is lost with the session. There is a reply only if
	// the session knows that the answer was not sent, possibly inside a Do after Run's return.
	OpRespond
	// OpSettle settles a delivery; one-way. Without a Ref it says that a Deliver may succeed which
	// returned false before.
	OpSettle
	// OpIssue asks the hub for a certificate. Its answers are deliveries of the feature Certificates,
	// to which the caller subscribes first, in an OpSubscribe for nothing else. There is a reply only
	// if the session knows that the request was not sent.
	OpIssue

	ops // number of ops
)

var opText = [ops]string{
	OpDial: "dial", OpRun: "connection", OpSend: "send", OpOpen: "open", OpClose: "close",
	OpRegister: "register", OpCall: "call", OpSubscribe: "subscribe",
	OpTwinGet: "twin get", OpTwinPatch: "twin patch", OpRenew: "renew", OpPing: "ping", OpRespond: "respond",
	OpSettle: "settle", OpIssue: "certificate",
}

// String returns the operation in a word or two; empty for OpNone.
func (o Op) String() string {
	if o >= ops {
		return "undefined operation"
	}
	return opText[o]
}
