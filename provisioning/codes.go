package provisioning

import (
	"github.com/hubline-iot/hubline/internal/statuscode"
	"github.com/hubline-iot/hubline/transport"
)

// codeRow is the meaning of one of the service's codes: status * 1000 + n.
type codeRow struct {
	code    int
	kind    transport.Kind
	meaning string
	hint    string
}

// Codes that the loop treats by themselves.
const codeNotEnrolled = 404201

// codes are the service's codes whose meaning differs from that of their status, or that have
// advice. Package statuscode has the meaning of the others. Source: the official device SDKs.
var codes = [...]codeRow{
	{400207, transport.Invalid, hint("the custom allocation failed"), hint("check the enrollment's allocation function")},
	{400208, transport.NotFound, hint("no hub is linked"), hint("link a hub to the provisioning service, and to the " +
		"enrollment")},
	{400209, transport.Forbidden, hint("the custom allocation is not authorized"), hint("check the function's key")},
	{401002, transport.Unauthorized, hint("token or certificate refused"),
		hint("check the key, or that the certificate is sent with its intermediates, the clock, and that the " +
			"enrollment exists")},
	{404201, transport.NotFound, hint("not enrolled"), hint("enroll the device, or check ID scope and registration id")},
	{429001, transport.Throttled, "throttled", ""},
}

// meaning returns the meaning of a refusal. code is 0 if there is none.
func meaning(status, code int) codeRow {
	for i := range codes {
		if codes[i].code == code {
			return codes[i]
		}
	}
	if class := code / 1000; class >= 400 && class <= 599 { // another class is no refusal's: the status counts
		status = class
	}
	return codeRow{code: code, kind: statuscode.Of(status, statuscode.Provisioning).Kind}
}
