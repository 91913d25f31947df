package atmodem

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// SIM7x00 is the dialect of SIMCom's SIM7500, SIM7600, SIM7800 and A76xx, after "SIM7500_SIM7600
// Series AT Command Manual" V2.00 and "A7600 Series SSL Application Note". Their TLS verifies the
// chain of certificates and not the name: Config.AnyName must be set.
var SIM7x00 = &Dialect{
	settings: []command{
		{text: "E0"}, {text: "+CMEE=1"}, {text: "+CFUN=1", seconds: 15}, {text: "+CTZU=1", optional: true},
	},
	tries: command{text: "+SPIC", info: "+SPIC: "}, triesField: 1,
	clock:   command{text: "+CCLK?", info: "+CCLK: "},
	radio:   []command{{text: "+CFUN=0", seconds: 15}, {text: "+CFUN=1", seconds: 15}},
	restart: command{text: "+CRESET"},
	remove:  command{text: `+CCERTDELE="%f"`},
	store:   command{text: `+CCERTDOWN="%f",%n`, seconds: 10},
	plain: service{
		ids:    10,
		detach: []command{{text: "+NETCLOSE", info: "+NETCLOSE: ", async: true, seconds: 20}},
		attach: []command{simContext, simLogin,
			{text: "+CIPRXGET=1"},
			{text: "+NETOPEN", info: "+NETOPEN: ", async: true, code: 1, seconds: 75, hint: hintAPN},
		},
		open: command{text: `+CIPOPEN=%i,"TCP","%h",%p`, info: "+CIPOPEN: ", async: true, own: true, code: 2,
			seconds: 75, hint: hintHost},
		shut: command{text: "+CIPCLOSE=%i", info: "+CIPCLOSE: ", async: true, own: true},
		send: command{text: "+CIPSEND=%i,%n", info: "+CIPSEND: ", async: true, own: true, took: 3,
			seconds: 30},
		count: command{text: "+CIPRXGET=4,%i", info: "+CIPRXGET: 4,", own: true}, countField: 2,
		read: command{text: "+CIPRXGET=2,%i,%n", data: "+CIPRXGET: 2,", own: true, length: 2},
	},
	secure: service{
		ids:    2,
		detach: []command{{text: "+CCHSTOP", info: "+CCHSTOP: ", async: true, seconds: 20}},
		attach: []command{simContext, simLogin,
			{text: `+CSSLCFG="sslversion",0,3`},
			{text: `+CSSLCFG="authmode",0,1`, kind: transport.Unsupported, hint: hintOld},
			{text: `+CSSLCFG="cacert",0,"%f"`, kind: transport.Invalid, hint: hintCA},
			{text: `+CSSLCFG="ignorelocaltime",0,0`, kind: transport.Unsupported, hint: hintOld},
			{text: `+CSSLCFG="enableSNI",0,1`, optional: true},
			{text: "+CCHSET=1,1"},
			{text: "+CCHSTART", info: "+CCHSTART: ", async: true, code: 1, seconds: 75, hint: hintAPN},
			{text: "+CCHSSLCFG=0,0"}, {text: "+CCHSSLCFG=1,0"},
		},
		open: command{text: `+CCHOPEN=%i,"%h",%p,2`, info: "+CCHOPEN: ", async: true, own: true, code: 2,
			seconds: 75, hint: hintHost},
		handshake: 15,
		shut:      command{text: "+CCHCLOSE=%i", info: "+CCHCLOSE: ", async: true, own: true},
		send: command{text: "+CCHSEND=%i,%n", info: "+CCHSEND: ", async: true, own: true, code: 2,
			seconds: 30},
		count: command{text: "+CCHRECV?", info: "+CCHRECV: LEN,"}, countField: byID,
		read: command{text: "+CCHRECV=%i,%n", data: "+CCHRECV: DATA,", info: "+CCHRECV: ", async: true, own: true,
			length: 2, code: 2},
	},
	events: []event{
		{"+CIPRXGET: 1,", received}, {"+CCHEVENT: ", received},
		{"+IPCLOSE: ", closed}, {"+CCH_PEER_CLOSED: ", closed}, {"+CCH_RECV_CLOSED: ", closed},
		{"+CIPEVENT: ", detached}, {"+CCH: CCH STOP", detached},
		{"RDY", restarted}, {"*ATREADY", restarted}, {"START", restarted}, {"NORMAL POWER DOWN", restarted},
	},
	key: keyTimes{off: 3 * time.Second, down: 26 * time.Second, on: 500 * time.Millisecond, boot: 25 * time.Second},
}

var (
	simContext = command{text: `+CGDCONT=1,"IP","%a"`}
	simLogin   = command{text: `+CGAUTH=1,%t,"%w","%u"`, user: true}
)
