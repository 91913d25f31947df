package modems

import (
	"fmt"
	"strings"
	"time"
)

// command is an entry of a table: what a command's name does. args are what follows "=".
type command struct {
	name string
	do   func(m *Modem, args []string)
}

// ok is a setting that has no effect.
func ok(m *Modem, _ []string) { m.answer("OK") }

// common are the commands of both families.
var common = []command{
	{"", ok}, {"E0", func(m *Modem, _ []string) {
		m.mu.Lock()
		m.echo = false
		m.mu.Unlock()
		m.answer("OK")
	}},
	{"+CMEE=", ok}, {"+CTZU=", ok},
	{"+CFUN=1,1", func(m *Modem, _ []string) { m.answer("OK"); m.Cut() }},
	{"+CRESET", func(m *Modem, _ []string) { m.answer("OK"); m.Cut() }},
	{"+CFUN=", func(m *Modem, args []string) {
		m.mu.Lock()
		m.radio = number(args, 0) == 1
		if !m.radio {
			m.attached = false
		}
		m.mu.Unlock()
		m.answer("OK")
	}},
	{"+CPIN?", (*Modem).sim}, {"+CPIN=", (*Modem).unlock},
	{"+SPIC", func(m *Modem, _ []string) { m.answer(fmt.Sprintf("+SPIC: %d,10,0,10", m.tries()), "OK") }},
	{"+QPINC=", func(m *Modem, _ []string) { m.answer(fmt.Sprintf(`+QPINC: "SC",%d,10`, m.tries()), "OK") }},
	{"+CEREG?", func(m *Modem, _ []string) { m.registration("+CEREG") }},
	{"+CGREG?", func(m *Modem, _ []string) { m.registration("+CGREG") }},
	{"+CREG?", func(m *Modem, _ []string) { m.registration("+CREG") }},
	{"+CCLK?", (*Modem).localTime}, {"+QLTS=1", (*Modem).universalTime},
	{"+CCERTDELE=", (*Modem).remove}, {"+QFDEL=", (*Modem).remove},
	{"+CCERTDOWN=", (*Modem).store}, {"+QFUPL=", (*Modem).store},
	{"+CSSLCFG=", (*Modem).setTLS}, {"+QSSLCFG=", (*Modem).setTLS},
}

// families are the commands of one family.
var families = map[Family][]command{
	SIMCom: {
		{"+CGDCONT=1,", func(m *Modem, args []string) { m.context(args[1], "", "") }},
		{"+CGAUTH=1,", func(m *Modem, args []string) { m.context("", args[2], args[1]) }},
		{"+CIPRXGET=1", func(m *Modem, _ []string) { m.setManual() }},
		{"+CCHSET=1,1", func(m *Modem, _ []string) { m.setManual() }},
		{"+CCHSSLCFG=", ok},
		{"+NETOPEN", func(m *Modem, _ []string) { m.activate("+NETOPEN") }},
		{"+CCHSTART", func(m *Modem, _ []string) { m.activate("+CCHSTART") }},
		{"+NETCLOSE", func(m *Modem, _ []string) { m.deactivate("+NETCLOSE") }},
		{"+CCHSTOP", func(m *Modem, _ []string) { m.deactivate("+CCHSTOP") }},
		{"+CIPOPEN=", func(m *Modem, args []string) { m.open("+CIPOPEN", args[0], args[2], args[3], false) }},
		{"+CCHOPEN=", func(m *Modem, args []string) { m.open("+CCHOPEN", args[0], args[1], args[2], args[3] == "2") }},
		{"+CIPCLOSE=", func(m *Modem, args []string) { m.shut("+CIPCLOSE", args[0]) }},
		{"+CCHCLOSE=", func(m *Modem, args []string) { m.shut("+CCHCLOSE", args[0]) }},
		{"+CIPSEND=", func(m *Modem, args []string) { m.transmit("+CIPSEND", args) }},
		{"+CCHSEND=", func(m *Modem, args []string) { m.transmit("+CCHSEND", args) }},
		{"+CIPRXGET=4,", func(m *Modem, args []string) {
			m.answer(fmt.Sprintf("+CIPRXGET: 4,%s,%d", args[0], m.waiting(number(args, 0))), "OK")
		}},
		{"+CIPRXGET=2,", func(m *Modem, args []string) { m.give("+CIPRXGET: 2,", args) }},
		{"+CCHRECV?", func(m *Modem, _ []string) {
			m.answer(fmt.Sprintf("+CCHRECV: LEN,%d,%d", m.waiting(0), m.waiting(1)), "OK")
		}},
		{"+CCHRECV=", func(m *Modem, args []string) { m.give("+CCHRECV: DATA,", args) }},
	},
	Quectel: {
		{"+QICSGP=1,1,", func(m *Modem, args []string) { m.context(args[0], args[1], args[2]) }},
		{"+QIACT=1", func(m *Modem, _ []string) { m.activate("") }},
		{"+QIDEACT=1", func(m *Modem, _ []string) { m.deactivate("") }},
		{"+QIOPEN=1,", func(m *Modem, args []string) { m.open("+QIOPEN", args[0], args[2], args[3], false) }},
		{"+QSSLOPEN=1,1,", func(m *Modem, args []string) { m.open("+QSSLOPEN", args[0], args[1], args[2], true) }},
		{"+QICLOSE=", func(m *Modem, args []string) { m.shut("", args[0]) }},
		{"+QSSLCLOSE=", func(m *Modem, args []string) { m.shut("", args[0]) }},
		{"+QISEND=", func(m *Modem, args []string) { m.transmit("", args) }},
		{"+QSSLSEND=", func(m *Modem, args []string) { m.transmit("", args) }},
		{"+QIRD=", func(m *Modem, args []string) { m.give("+QIRD: ", args) }},
		{"+QSSLRECV=", func(m *Modem, args []string) { m.give("+QSSLRECV: ", args) }},
	},
}

// obey executes a command without its "AT". Unknown ones are refused.
func (m *Modem) obey(text string) {
	for _, table := range [][]command{common, families[m.cfg.Family]} {
		for _, c := range table {
			rest, found := strings.CutPrefix(text, c.name)
			if !found || !strings.HasSuffix(c.name, "=") && !strings.HasSuffix(c.name, ",") && rest != "" {
				continue
			}
			args := list(rest)
			if least, ok := arity[c.name]; ok && len(args) < least {
				break
			}
			c.do(m, args)
			return
		}
	}
	m.answer("ERROR")
}

// arity is how many arguments a command needs at least. A lost byte may have been a comma.
var arity = map[string]int{
	"+CGDCONT=1,": 2, "+CGAUTH=1,": 3, "+CIPOPEN=": 4, "+CCHOPEN=": 4, "+CIPSEND=": 2, "+CCHSEND=": 2,
	"+CIPRXGET=2,": 2, "+CCHRECV=": 2, "+QICSGP=1,1,": 4, "+QIOPEN=1,": 4, "+QSSLOPEN=1,1,": 3, "+QISEND=": 2,
	"+QSSLSEND=": 2, "+QIRD=": 2, "+QSSLRECV=": 2, "+CCERTDOWN=": 2, "+QFUPL=": 2, "+CSSLCFG=": 3, "+QSSLCFG=": 3,
}

func (m *Modem) tries() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cfg.Tries
}

// sim answers what the SIM wants.
func (m *Modem) sim(_ []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.cfg.NoSIM:
		m.answerLocked("+CME ERROR: 10")
	case m.cfg.Tries <= 0:
		m.answerLocked("+CPIN: SIM PUK", "OK")
	case m.cfg.PIN != "" && !m.unlocked:
		m.answerLocked("+CPIN: SIM PIN", "OK")
	default:
		m.answerLocked("+CPIN: READY", "OK")
	}
}

func (m *Modem) unlock(args []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pins++
	if m.cfg.Tries <= 0 || args[0] != m.cfg.PIN {
		m.cfg.Tries = max(0, m.cfg.Tries-1)
		m.answerLocked("+CME ERROR: 16")
		return
	}
	m.cfg.Tries, m.unlocked = 3, true
	m.answerLocked("OK")
}

func (m *Modem) registration(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := 1
	switch {
	case !m.radio:
		state = 0
	case m.asked < m.cfg.Denied:
		state = 3
	case m.asked < m.cfg.Denied+m.cfg.Searching:
		state = 2
	}
	if name == "+CREG" {
		m.asked++
	}
	if name != "+CGREG" && state == 1 {
		state = 5
	}
	m.answerLocked(fmt.Sprintf("%s: 0,%d", name, state), "OK")
}

func (m *Modem) localTime(_ []string) {
	if m.cfg.Now == nil {
		m.answer(`+CCLK: "80/01/06,00:00:42+00"`, "OK")
		return
	}
	local := m.cfg.Now().UTC().Add(time.Duration(m.cfg.Zone) * 15 * time.Minute)
	m.answer(local.Format(`+CCLK: "06/01/02,15:04:05`)+fmt.Sprintf(`%+03d"`, m.cfg.Zone), "OK")
}

func (m *Modem) universalTime(_ []string) {
	if m.cfg.Now == nil {
		m.answer(`+QLTS: ""`, "OK")
		return
	}
	m.answer(m.cfg.Now().UTC().Format(`+QLTS: "2006/01/02,15:04:05`)+fmt.Sprintf(`%+03d,0"`, m.cfg.Zone), "OK")
}

func (m *Modem) remove(args []string) {
	m.mu.Lock()
	_, had := m.files[args[0]]
	delete(m.files, args[0])
	m.mu.Unlock()
	if had {
		m.answer("OK")
		return
	}
	m.answer("+CME ERROR: 405")
}

func (m *Modem) store(args []string) {
	n := number(args, 1)
	if n < 1 || n > 10240 {
		m.answer("ERROR")
		return
	}
	if m.cfg.Family == Quectel {
		m.answer("CONNECT")
	} else {
		m.send("\r\n>")
	}
	p, err := m.payload(n)
	if err != nil {
		return
	}
	m.mu.Lock()
	m.files[args[0]] = p
	m.mu.Unlock()
	if m.cfg.Family == Quectel {
		m.answer(fmt.Sprintf("+QFUPL: %d,3f12", n))
	}
	m.answer("OK")
}

func (m *Modem) setTLS(args []string) {
	m.mu.Lock()
	m.tls[args[0]] = args[2]
	_, file := m.files[args[2]]
	m.mu.Unlock()
	if args[0] == "cacert" && !file {
		m.answer("ERROR")
		return
	}
	m.answer("OK")
}

func (m *Modem) context(apn, user, secret string) {
	m.mu.Lock()
	if apn != "" {
		m.apn = apn
	}
	m.user, m.secret = user, secret
	m.mu.Unlock()
	m.answer("OK")
}

func (m *Modem) setManual() {
	m.mu.Lock()
	m.manual = true
	m.mu.Unlock()
	m.answer("OK")
}
