package atmodem

import (
	"time"

	"github.com/hubline-iot/hubline/transport"
)

// BG9x is the dialect of Quectel's BG95, BG96, BG77 and EG9x, after "BG96 TCP/IP AT Commands
// Manual" and "BG95&BG77 SSL Application Note". Firmware that cannot compare the certificate's name
// (without AT+QSSLCFG="checkhost") is refused unless Config.AnyName is set.
//
// The time is the network's, by AT+QLTS=1: models disagree on whether AT+CCLK tells local time.
var BG9x = &Dialect{
	settings: []command{
		{text: "E0"}, {text: "+CMEE=1"}, {text: "+CFUN=1", seconds: 15}, {text: "+CTZU=1", optional: true},
	},
	tries: command{text: `+QPINC="SC"`, info: `+QPINC: "SC",`}, triesField: 1,
	clock: command{text: "+QLTS=1", info: "+QLTS: "}, utc: true,
	checksName: true,
	radio:      []command{{text: "+CFUN=0", seconds: 15}, {text: "+CFUN=1", seconds: 15}},
	restart:    command{text: "+CFUN=1,1", seconds: 15},
	remove:     command{text: `+QFDEL="%f"`},
	store: command{text: `+QFUPL="%f",%n,30`, connect: true, info: "+QFUPL: ", took: 1,
		seconds: 30},
	plain: service{
		ids: 12, detach: bgDetach,
		attach: []command{bgContext, bgActivate},
		open: command{text: `+QIOPEN=1,%i,"TCP","%h",%p,0,0`, info: "+QIOPEN: ", async: true, own: true, code: 2,
			seconds: 75, hint: hintHost},
		shut: command{text: "+QICLOSE=%i,1"},
		send: command{text: "+QISEND=%i,%n", sendOK: true, seconds: 30},
		read: command{text: "+QIRD=%i,%n", data: "+QIRD: ", length: 1},
	},
	secure: service{
		ids: 12, detach: bgDetach,
		attach: []command{bgContext, bgActivate,
			{text: `+QSSLCFG="sslversion",1,3`}, {text: `+QSSLCFG="ciphersuite",1,0XFFFF`},
			{text: `+QSSLCFG="seclevel",1,1`, kind: transport.Unsupported, hint: hintOld},
			{text: `+QSSLCFG="cacert",1,"%f"`, kind: transport.Invalid, hint: hintCA},
			{text: `+QSSLCFG="ignorelocaltime",1,0`, kind: transport.Unsupported, hint: hintOld},
			{text: `+QSSLCFG="sni",1,1`, optional: true},
			{text: `+QSSLCFG="checkhost",1,1`, name: true, kind: transport.Unsupported, hint: hintName},
		},
		open: command{text: `+QSSLOPEN=1,1,%i,"%h",%p,0`, info: "+QSSLOPEN: ", async: true, own: true, code: 2,
			seconds: 75, hint: hintHost},
		handshake: 579,
		shut:      command{text: "+QSSLCLOSE=%i,1"},
		send:      command{text: "+QSSLSEND=%i,%n", sendOK: true, seconds: 30},
		read:      command{text: "+QSSLRECV=%i,%n", data: "+QSSLRECV: ", length: 1},
	},
	events: []event{
		{`+QIURC: "recv",`, received}, {`+QSSLURC: "recv",`, received},
		{`+QIURC: "closed",`, closed}, {`+QSSLURC: "closed",`, closed},
		{`+QIURC: "pdpdeact",`, detached},
		{"RDY", restarted}, {"APP RDY", restarted}, {"NORMAL POWER DOWN", restarted}, {"POWERED DOWN", restarted},
	},
	key: keyTimes{off: 1500 * time.Millisecond, down: 5 * time.Second, on: 550 * time.Millisecond, boot: 15 * time.Second},
}

var (
	bgDetach   = []command{{text: "+QIDEACT=1", seconds: 40}}
	bgContext  = command{text: `+QICSGP=1,1,"%a","%u","%w",%t`}
	bgActivate = command{text: "+QIACT=1", seconds: 75, hint: hintAPN}
)
