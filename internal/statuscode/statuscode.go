// Package statuscode is the single table of the meanings of HTTP status codes. Status codes come
// over HTTPS, in replies about the twin and about tokens over MQTT and AMQP, from blob storage,
// from proxies and from WebSocket servers. A status has the same meaning everywhere, unless a
// second row states where it differs and why. Boards link the package, so reasons are comments.
// Package hubhttp reads a hub's whole answer over HTTPS: the hub's six-digit codes, which it has,
// go before the status.
//
// Sources: RFC 9110 section 15, the IANA registry, RFC 4918 (WebDAV), RFC 6585, and the error codes
// in the developer guide of Azure IoT Hub.
package statuscode

import "github.com/hubline-iot/hubline/transport"

// From is a set of senders of a status.
type From uint8

const (
	// Hub is the HTTPS API of a hub.
	Hub From = 1 << iota
	// Twin is a hub's reply to a request for the twin, over MQTT or AMQP.
	Twin
	// Token is a hub's reply to a token, over AMQP.
	Token
	// Storage is a blob service.
	Storage
	// Upgrade is a server's answer to the request for WebSocket.
	Upgrade
	// Proxy is a proxy's answer to CONNECT.
	Proxy
	// Web is any other service.
	Web
	// Provisioning is the provisioning service, over any protocol.
	Provisioning

	anywhere From = 1<<8 - 1
)

// About is the subject of an answer. It decides which layer handles the failure.
type About uint8

const (
	// Fine: the request succeeded.
	Fine About = iota
	// Message: this message or request would always be refused, but others not. A batch is split.
	Message
	// Moment: the same request may succeed at another time.
	Moment
	// Identity: every request of the device would get the same answer, so the session ends.
	Identity
)

// Meaning is the meaning of a status. The Kind of a success is ignored.
type Meaning struct {
	Kind  transport.Kind
	About About
}

// row gives the meaning of a status, or of a class of statuses by its first digit. The last
// matching row counts.
type row struct {
	status uint16
	from   From
	Meaning
}

var table = [...]row{
	{1, anywhere, Meaning{transport.Protocol, Identity}}, // no final answer
	// A success that the service never gives comes from another peer, such as a proxy or a captive
	// portal, and acknowledges nothing. A success that carries content is also judged by that content:
	// 200 of a hub's HTTPS API and of the provisioning service, 206 of storage.
	{2, anywhere, Meaning{transport.Protocol, Identity}},
	{2, Proxy | Web, Meaning{transport.Unknown, Fine}},   // RFC 9110 section 9.3.6; nothing else is known of the service
	{3, anywhere, Meaning{transport.Protocol, Identity}}, // not followed: no service here redirects
	{4, anywhere, Meaning{transport.Unknown, Identity}},  // unassigned: a retry may do harm
	{4, Twin | Web, Meaning{transport.Invalid, Message}}, // it is about this request only, so the request is at fault
	{5, anywhere, Meaning{transport.Unavailable, Moment}},

	{200, Twin | Token | Provisioning, Meaning{transport.Unknown, Fine}},
	{201, Storage, Meaning{transport.Unknown, Fine}},
	{202, Twin | Token | Provisioning, Meaning{transport.Unknown, Fine}},
	{204, Hub | Twin, Meaning{transport.Unknown, Fine}},

	{400, anywhere, Meaning{transport.Invalid, Message}},
	{400, Upgrade | Proxy, Meaning{transport.Protocol, Identity}}, // the request is valid: another kind of server
	{401, anywhere, Meaning{transport.Unauthorized, Identity}},
	{402, anywhere, Meaning{transport.Quota, Moment}},
	{402, Upgrade | Proxy, Meaning{transport.Forbidden, Identity}}, // a gateway's restriction, not a quota that refills
	{403, anywhere, Meaning{transport.Forbidden, Identity}},
	// A hub has separate codes for forbidden requests (403000, 403001, 403008 to 403012). A bare 403
	// means an exhausted quota: messages, queue depth, uploads; for tokens, the number per connection.
	// This does not apply to the twin, which has no quota besides the rate (429).
	{403, Hub | Token, Meaning{transport.Quota, Moment}},
	{404, anywhere, Meaning{transport.NotFound, Identity}},
	{404, Proxy, Meaning{transport.Protocol, Identity}}, // a web server, not a proxy
	{405, anywhere, Meaning{transport.Unsupported, Identity}},
	{405, Upgrade, Meaning{transport.Protocol, Identity}}, // a web server without WebSocket at this path
	{405, Proxy, Meaning{transport.Forbidden, Identity}},  // a proxy that does not allow CONNECT
	{406, anywhere, Meaning{transport.Unsupported, Identity}},
	{406, Upgrade | Proxy, Meaning{transport.Protocol, Identity}}, // as 400
	{407, anywhere, Meaning{transport.Protocol, Identity}},        // a proxy on the way answers in place of the service
	{407, Proxy | Web, Meaning{transport.Unauthorized, Identity}},
	{408, anywhere, Meaning{transport.Timeout, Moment}},
	{409, anywhere, Meaning{transport.Conflict, Message}},
	{410, anywhere, Meaning{transport.NotFound, Identity}},
	{411, anywhere, Meaning{transport.Protocol, Identity}},
	{412, anywhere, Meaning{transport.Conflict, Message}},
	{413, anywhere, Meaning{transport.TooLarge, Message}},
	{414, anywhere, Meaning{transport.TooLarge, Message}},
	{415, anywhere, Meaning{transport.Unsupported, Message}},
	{416, anywhere, Meaning{transport.Invalid, Message}},
	{417, anywhere, Meaning{transport.Unsupported, Identity}},
	{421, anywhere, Meaning{transport.Unavailable, Moment}}, // another connection may reach the right server
	{422, anywhere, Meaning{transport.Invalid, Message}},
	{423, anywhere, Meaning{transport.Unavailable, Moment}},
	{423, Web, Meaning{transport.Conflict, Message}}, // WebDAV: the lock is another client's and may last
	{424, anywhere, Meaning{transport.Unavailable, Moment}},
	{424, Web, Meaning{transport.Invalid, Message}}, // WebDAV: an earlier part of the same request failed
	{425, anywhere, Meaning{transport.Unavailable, Moment}},
	{426, anywhere, Meaning{transport.Unsupported, Identity}},
	{428, anywhere, Meaning{transport.Conflict, Message}},
	{429, anywhere, Meaning{transport.Throttled, Moment}},
	{431, anywhere, Meaning{transport.TooLarge, Message}},
	{451, anywhere, Meaning{transport.Forbidden, Identity}},
	{499, anywhere, Meaning{transport.Unavailable, Moment}}, // a hub's 499000 ClientClosedRequest
	{499, Web, Meaning{transport.Invalid, Message}},         // unassigned, as any other

	{501, anywhere, Meaning{transport.Unsupported, Identity}},
	{504, anywhere, Meaning{transport.Timeout, Moment}},
	{505, anywhere, Meaning{transport.Unsupported, Identity}},
	{507, anywhere, Meaning{transport.Quota, Moment}},
	{508, Web, Meaning{transport.Invalid, Message}},       // WebDAV: the request leads to a loop
	{509, Web, Meaning{transport.Throttled, Moment}},      // some hosts' limit of bandwidth; unassigned elsewhere
	{511, anywhere, Meaning{transport.Network, Moment}},   // a user may log in to the network meanwhile
	{511, Web, Meaning{transport.Unauthorized, Identity}}, // a single operation does not wait for that
}

// Of returns the meaning of a status from that sender. Numbers outside 100 to 599 are Protocol.
func Of(status int, from From) Meaning {
	m := Meaning{transport.Protocol, Identity}
	if status < 100 || status > 599 {
		return m
	}
	class := uint16(status / 100)
	for i := range table {
		if r := &table[i]; r.from&from != 0 && (r.status == uint16(status) || r.status == class) {
			m = r.Meaning
		}
	}
	return m
}
