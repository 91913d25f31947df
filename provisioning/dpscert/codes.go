package dpscert

import (
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// fix says what helps against a refusal.
type fix uint8

const (
	repeat       fix = iota // the same request, later
	newRequest              // another request, which may have another key
	replaceOther            // the request, in place of the active one
	replaceNone             // the request, in place of none
)

// codeRow is the meaning of one of the hub's codes.
type codeRow struct {
	code    int
	kind    transport.Kind
	fix     fix
	meaning string
	hint    string
}

// codes are the hub's codes for requests for certificates: status * 1000 + n. Package statuscode
// has the meaning of other statuses. Source: the official device SDKs.
var codes = [...]codeRow{
	{400001, transport.Invalid, newRequest, "the request is malformed", ""},
	{400004, transport.Invalid, newRequest, "the request is malformed", ""},
	{400006, transport.Invalid, newRequest, "the request is malformed", ""},
	{400037, transport.Invalid, newRequest, "the certificate was not issued", "check the linked certificate authority"},
	{400040, transport.Invalid, newRequest, "the signing request was refused", "check the key and its type"},
	{403010, transport.Unsupported, newRequest, "the hub issues no certificates", "set Options.Registrar"},
	{404001, transport.NotFound, newRequest, "the device is not registered", "register it again"},
	{409004, transport.Conflict, replaceOther, "another request is pending", ""},
	{409005, transport.Conflict, replaceOther, "another request is active", ""},
	{412001, transport.Conflict, replaceNone, "there is no request to replace", ""},
	{412005, transport.Conflict, replaceNone, "there is no request to replace", ""},
	{429002, transport.Throttled, repeat, "throttled", ""},
	{429003, transport.Throttled, repeat, "throttled", ""},
	{500001, transport.Unavailable, repeat, "server error", ""},
	{503001, transport.Unavailable, repeat, "busy", ""},
	{503102, transport.Unavailable, repeat, "the device's state is not available", ""},
}

// meaning returns the meaning of a refusal. code is 0 if there is none.
func meaning(status, code int) codeRow {
	for i := range codes {
		if codes[i].code == code {
			return codes[i]
		}
	}
	row := codeRow{code: code, kind: statuscode.Of(status, statuscode.Twin).Kind}
	if status/100 == 4 && status != 429 && status != 408 {
		row.fix = newRequest
	}
	return row
}
