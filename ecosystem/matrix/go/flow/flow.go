// Package flow holds the checks every Go client goes through; each client brings a Client.
package flow

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

const (
	partitions      = 3
	perPartition    = 40
	groupPartitions = 4
	wait            = 45 * time.Second // one step of the group checks
)

// Header of a record; a nil value is Kafka's null.
type Header struct {
	Key   string
	Value []byte
}

// Record as it is sent (Offset unused), acknowledged or read.
type Record struct {
	Partition  int
	Offset     int64
	Key, Value []byte
	Headers    []Header
}

// Mode of a produce call: a codec's name, idempotence where it is to differ from the default, and
// no acknowledgements at all: the client then fills in the offsets by counting.
type Mode struct {
	Codec      string
	Idempotent *bool
	NoAcks     bool
}

// Member of a group that reads until it is stopped, then commits and leaves.
type Member interface {
	Assigned() []int
	Stop() error
}

// Client is one Kafka client library. Produce fills in the offsets of the acknowledgements.
type Client interface {
	Create(topic string, partitions int) error
	Produce(topic string, records []Record, m Mode) error
	Consume(topic string, partitions, count int) ([]Record, error)
	Member(group, topic string, see func(value []byte)) (Member, error)
	Committed(group, topic string, partitions int) ([]int64, error)
}

// Plan says what this client supports.
type Plan struct {
	Name, Version string
	Codecs        []string
	Idempotent    bool // has idempotence
	Plain         bool // idempotent by default: once without it
	Acks0         bool // asks for no acknowledgement by default
	NoNullHeaders bool // cannot tell a null header from an empty one
	NoNullBytes   bool // cannot tell a null key or value from an empty one
}

type flow struct {
	c      Client
	p      Plan
	prefix string
	failed bool
	serial int
	topic  string
	gid    string
}

func (f *flow) sample() (out []Record) {
	for i := range perPartition {
		for p := range partitions {
			r := Record{Partition: p}
			switch i % 5 {
			case 0:
			case 1:
				r.Key = []byte{}
			default:
				r.Key = fmt.Appendf(nil, "key-%d-%d", p, i)
			}
			switch i % 7 {
			case 0:
			case 1:
				r.Value = []byte{}
			default:
				r.Value = []byte(strings.Repeat(fmt.Sprintf("value-%d-%d ", p, i), i*i))
			}
			switch i % 3 {
			case 1:
				r.Headers = []Header{{"h", []byte("v")}}
			case 2:
				r.Headers = []Header{{"h", []byte("1")}, {"h", []byte{0, 255}}, {"empty", []byte{}}, {"none", nil}}
			}
			out = append(out, r)
		}
	}
	return out
}

func (f *flow) equal(a, b []byte, relaxed bool) bool {
	return bytes.Equal(a, b) && (relaxed || (a == nil) == (b == nil))
}

// same: every record once, in order, at the offset its acknowledgement named, no gap.
func (f *flow) same(sent, got []Record) error {
	want := map[[2]int64]Record{}
	for _, r := range sent {
		want[[2]int64{int64(r.Partition), r.Offset}] = r
	}
	if len(want) != len(sent) {
		return fmt.Errorf("%d records acknowledged at %d offsets", len(sent), len(want))
	}
	if len(got) != len(sent) {
		return fmt.Errorf("read %d of %d records", len(got), len(sent))
	}
	next := map[int]int64{}
	for _, g := range got {
		at := fmt.Sprintf("%d/%d", g.Partition, g.Offset)
		if next[g.Partition] != g.Offset {
			return fmt.Errorf("%s where offset %d was due", at, next[g.Partition])
		}
		next[g.Partition]++
		w := want[[2]int64{int64(g.Partition), g.Offset}]
		if !f.equal(w.Key, g.Key, f.p.NoNullBytes) || !f.equal(w.Value, g.Value, f.p.NoNullBytes) {
			return fmt.Errorf("%s: sent %q = %q, read %q = %q", at, w.Key, w.Value, g.Key, g.Value)
		}
		if len(w.Headers) != len(g.Headers) {
			return fmt.Errorf("%s: headers %v, read %v", at, w.Headers, g.Headers)
		}
		for i, h := range w.Headers {
			if h.Key != g.Headers[i].Key || !f.equal(h.Value, g.Headers[i].Value, f.p.NoNullHeaders) {
				return fmt.Errorf("%s: header %d is %v, read %v", at, i, h, g.Headers[i])
			}
		}
	}
	return nil
}

func (f *flow) check(name string, run func() error) {
	start, result := time.Now(), "PASS"
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "%s %s: %v\n", f.p.Name, name, err)
		result, f.failed = "FAIL", true
	}
	fmt.Printf("%s %s %s %.1f\n", f.p.Name, name, result, time.Since(start).Seconds())
}

func (f *flow) round(suffix string, create bool, m Mode) error {
	topic, records := f.prefix+"-"+suffix, f.sample()
	if create {
		if err := f.c.Create(topic, partitions); err != nil {
			return fmt.Errorf("create: %w", err)
		}
	}
	if m.NoAcks {
		time.Sleep(time.Second) // a refusal while the topic is new would go unnoticed
	}
	if err := f.c.Produce(topic, records, m); err != nil {
		return fmt.Errorf("produce: %w", err)
	}
	got, err := f.c.Consume(topic, partitions, len(records))
	if err != nil {
		return fmt.Errorf("consume: %w", err)
	}
	return f.same(records, got)
}

// tracked is a member and what it has seen.
type tracked struct {
	Member
	mu   sync.Mutex
	seen map[string]bool
	read int
}

func (f *flow) join() (*tracked, error) {
	t := &tracked{seen: map[string]bool{}}
	m, err := f.c.Member(f.gid, f.topic, func(v []byte) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.seen[string(v)] = true
		t.read++
	})
	t.Member = m
	return t, err
}

func (t *tracked) has(value string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.seen[value]
}

// count says how many of the values at least one of the members has seen.
func count(values []string, members ...*tracked) (n int) {
	for _, v := range values {
		for _, m := range members {
			if m.has(v) {
				n++
				break
			}
		}
	}
	return n
}

func until(what string, condition func() bool, members ...*tracked) error {
	for end := time.Now().Add(wait); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			state := ""
			for _, m := range members {
				state += fmt.Sprintf(" %v", m.Assigned())
			}
			return fmt.Errorf("%s: not within %v; members have%s", what, wait, state)
		}
	}
	return nil
}

func (f *flow) more(n int) ([]string, error) {
	values, records := []string{}, []Record{}
	for i := range n {
		v := fmt.Sprintf("g-%d", f.serial)
		f.serial++
		values = append(values, v)
		records = append(records, Record{Partition: i % groupPartitions, Value: []byte(v)})
	}
	return values, f.c.Produce(f.topic, records, Mode{})
}

// readMore produces records and waits until the members have read all of them.
func (f *flow) readMore(n int, members ...*tracked) ([]string, error) {
	values, err := f.more(n)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("reading up to record %d", f.serial)
	return values, until(what, func() bool { return count(values, members...) == n }, members...)
}

func (f *flow) group() error {
	f.topic, f.gid = f.prefix+"-g", f.prefix+"-group"
	if err := f.c.Create(f.topic, groupPartitions); err != nil {
		return err
	}
	first, err := f.more(200)
	if err != nil {
		return err
	}
	a, err := f.join()
	if err != nil {
		return err
	}
	if err := until("first member reads all", func() bool { return count(first, a) == 200 }, a); err != nil {
		return err
	}
	b, err := f.join()
	if err != nil {
		return err
	}
	both := func() bool {
		owned, x, y := map[int]bool{}, a.Assigned(), b.Assigned()
		for _, p := range append(append([]int{}, x...), y...) {
			owned[p] = true
		}
		return len(x) > 0 && len(y) > 0 && len(x)+len(y) == len(owned) && len(owned) == groupPartitions
	}
	if err := until("both have partitions", both, a, b); err != nil {
		return err
	}
	second, err := f.readMore(200, a, b)
	if err != nil {
		return err
	}
	if count(second, a) == 0 || count(second, b) == 0 {
		return fmt.Errorf("one member read everything")
	}
	if err := b.Stop(); err != nil {
		return fmt.Errorf("second member ends: %w", err)
	}
	all := func() bool { return len(a.Assigned()) == groupPartitions }
	if err := until("the first has all again", all, a); err != nil {
		return err
	}
	if _, err := f.readMore(100, a); err != nil {
		return err
	}
	return a.Stop()
}

func (f *flow) commit() error {
	got, err := f.c.Committed(f.gid, f.topic, groupPartitions)
	for p, offset := range got {
		if want := int64(f.serial / groupPartitions); err == nil && offset != want {
			err = fmt.Errorf("partition %d: committed %d, end offset %d", p, offset, want)
		}
	}
	return err
}

func (f *flow) resume() error {
	fresh, err := f.more(40)
	if err != nil {
		return err
	}
	c, err := f.join()
	if err != nil {
		return err
	}
	if err := until("new records are read", func() bool { return count(fresh, c) == 40 }, c); err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond)
	if err := c.Stop(); err != nil {
		return err
	}
	if c.read != len(fresh) {
		return fmt.Errorf("the new member read %d records, not %d", c.read, len(fresh))
	}
	return nil
}

// Main runs all checks and ends the process.
func Main(c Client, p Plan) {
	fmt.Printf("# %s %s\n", p.Name, p.Version)
	base := regexp.MustCompile(`\W+`).ReplaceAllString(p.Name, "-")
	f := &flow{c: c, p: p, prefix: fmt.Sprintf("m-%s-%d-%d", base, os.Getpid(), time.Now().Unix())}
	topic, records := f.prefix+"-t", f.sample()
	f.check("create", func() error { return c.Create(topic, partitions) })
	f.check("produce", func() error { return c.Produce(topic, records, Mode{}) })
	f.check("consume", func() error {
		got, err := c.Consume(topic, partitions, len(records))
		if err != nil {
			return err
		}
		return f.same(records, got)
	})
	f.check("auto", func() error { return f.round("auto", false, Mode{}) })
	for _, codec := range p.Codecs {
		f.check(codec, func() error { return f.round(codec, true, Mode{Codec: codec}) })
	}
	on, off := true, false
	if p.Idempotent {
		f.check("idempotent", func() error { return f.round("idem", true, Mode{Idempotent: &on}) })
	}
	if p.Plain {
		f.check("plain", func() error { return f.round("plain", true, Mode{Idempotent: &off}) })
	}
	if p.Acks0 {
		f.check("acks0", func() error { return f.round("acks0", true, Mode{NoAcks: true}) })
	}
	f.check("group", f.group)
	f.check("commit", f.commit)
	f.check("resume", f.resume)
	if f.failed {
		os.Exit(1)
	}
}
