package fault

import (
	"maps"
	"slices"

	"github.com/hubline-iot/hubline/testbroker/updatedata"
)

// Faults of an update service. Over a provisioning service its checks and reports are requests of
// the kinds [RouteUpdateCheck] and [RouteUpdateReport], to which the faults of
// [ProvisioningKinds] happen as well, and over HTTP its files are of the kind [RouteUpdateFile].
const (
	// RefuseUpdate does not execute a check or a report: the answer has the code Text, by default
	// THROTTLED, as info.aduErrorCode, with Description as the message. If Description is Text, only
	// the message has the code, as at the live service. Status and ErrorCode, unless zero, contradict
	// the code; a negative ErrorCode leaves the number out. [UpdateRefusals] are all forms.
	RefuseUpdate Kind = iota + 440
	// WrongOffer makes something about an offer wrong. Text says what:
	//
	//   - "workflow": the deployment is replaced by one with another workflow id
	//   - "size", "file hash": the manifest lies about the size or the hash of each file
	//   - "huge": the manifest has more than 1 MiB
	//   - "manifest hash": the signature is for another manifest
	//   - "algorithm": the signature is of the algorithm none
	//   - "unknown root": a root that no device knows signs
	//   - "forged root": a forged root signs under the name of the present one
	//   - "test root": a test root signs, the present one's name with ".T" at the end
	//   - "forged key": a forged signing key signs, under a signature by the root for another one
	//   - "disabled root", "revoked key": the oldest disabled root signs, or revoked signing key
	//   - "manifest", "signature": it is changed after it was made
	//   - "no files": there are no URLs of files
	//   - "http": the URLs of files are of HTTP without TLS
	WrongOffer
	// WrongFile makes something about a file wrong. Text says what:
	//
	//   - "content": a byte is changed
	//   - "short", "long": the last byte is missing, or one follows
	//   - "etag": the ETag is another one with each request
	//   - "whole": the answer ignores Range
	WrongFile
	// WrongRootKeys makes something about the root key package wrong. Text says what:
	//
	//   - "signature": the first signature is wrong
	//   - "forged": forged roots sign it
	//   - "missing": the last signature is missing
	//   - "order": the signatures are in the reverse order
	//   - "older": its version is lower by one and nothing is disabled
	//   - "test": it is for tests
	WrongRootKeys
	// SlowFile sends a file with at most Rate bytes a second. Default: 1,024.
	SlowFile
)

var updateKinds = map[Kind]row{
	RefuseUpdate: {"RefuseUpdate", mqtt | http, "Description Status ErrorCode RetryAfter Route Text",
		Fault{Text: string(updatedata.CodeThrottled)}},
	WrongOffer:    {"WrongOffer", all, "Text", none},
	WrongFile:     {"WrongFile", http, "Text", none},
	WrongRootKeys: {"WrongRootKeys", http, "Text", none},
	SlowFile:      {"SlowFile", http, "Rate", Fault{Rate: 1024}},
}

// wrongs are the texts of kinds that name what is wrong.
var wrongs = map[Kind][]string{
	WrongOffer: {"workflow", "size", "file hash", "huge", "manifest hash", "algorithm", "unknown root", "forged root",
		"test root", "forged key", "disabled root", "revoked key", "manifest", "signature", "no files", "http"},
	WrongFile:     {"content", "short", "long", "etag", "whole"},
	WrongRootKeys: {"signature", "forged", "missing", "order", "older", "test"},
}

// UpdateKinds returns every kind of fault that happens only at an update service, in a fixed order.
func UpdateKinds() []Kind { return slices.Sorted(maps.Keys(updateKinds)) }

// Wrongs returns the texts that WrongOffer, WrongFile or WrongRootKeys takes; nil for other kinds.
func Wrongs(k Kind) []string { return slices.Clone(wrongs[k]) }

// UpdateRefusals returns a [RefuseUpdate] for each code of the service in each form in which
// clients must understand it: in info, in the message without and with its number, in info with the
// status of another failure, and in info with the number of another failure.
func UpdateRefusals() []Fault {
	const otherStatus, otherNumber = 418, 418000
	var all []Fault
	for _, code := range updatedata.Codes() {
		name := string(code)
		all = append(all,
			Fault{Kind: RefuseUpdate, Text: name},
			Fault{Kind: RefuseUpdate, Text: name, Description: name, ErrorCode: -1},
			Fault{Kind: RefuseUpdate, Text: name, Description: name},
			Fault{Kind: RefuseUpdate, Text: name, Status: otherStatus},
			Fault{Kind: RefuseUpdate, Text: name, ErrorCode: otherNumber},
		)
	}
	return all
}
