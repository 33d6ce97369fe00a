package main

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// id names one record: who sent it, and its number there.
type id struct{ producer, seq int }

// place is where a record lies.
type place struct {
	partition int32
	offset    int64
}

// value is what the record with this id holds: `producer:seq:` and bytes that follow from them.
func value(i id) []byte {
	head := fmt.Appendf(nil, "%d:%d:", i.producer, i.seq)
	h := crc32.ChecksumIEEE(head)
	return append(head, bytes.Repeat([]byte{byte('a' + h%26)}, int(h%1500))...)
}

// parse gives the id of a value, and whether the value is exactly what was sent under it.
func parse(v []byte) (i id, whole bool) {
	parts := bytes.SplitN(v, []byte(":"), 3)
	if len(parts) != 3 {
		return i, false
	}
	var e1, e2 error
	i.producer, e1 = strconv.Atoi(string(parts[0]))
	i.seq, e2 = strconv.Atoi(string(parts[1]))
	return i, e1 == nil && e2 == nil && bytes.Equal(v, value(i))
}

// ledger keeps every acknowledgement.
type ledger struct {
	mu     sync.Mutex
	acked  map[id]place
	at     map[place]id
	sent   int
	errors []string
	reused []string
}

func newLedger() *ledger { return &ledger{acked: map[id]place{}, at: map[place]id{}} }

func (l *ledger) report(i id, r *kgo.Record, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.errors = append(l.errors, fmt.Sprintf("%v: %v", i, err))
		return
	}
	p := place{r.Partition, r.Offset}
	if other, taken := l.at[p]; taken {
		l.reused = append(l.reused, fmt.Sprintf("%v acknowledged for %v and %v", p, other, i))
	}
	l.acked[i], l.at[p] = p, i
}

func (l *ledger) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.acked)
}

// clientOptions: quick to come back after a restart, and never giving a record up by itself.
func clientOptions(address string) []kgo.Opt {
	return []kgo.Opt{
		kgo.SeedBrokers(address),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
		kgo.RequestRetries(1_000_000),
		kgo.UnknownTopicRetries(-1),
		kgo.RetryTimeout(10 * time.Minute),
	}
}

// produce sends until the context ends, at about `rate` records a second in bursts, then waits for
// all acknowledgements. Idempotent, as is the client's default; a loss that the client can see for
// itself (a sequence number the broker does not expect) fails the record.
func produce(ctx context.Context, o options, n int, l *ledger) error {
	cl, err := kgo.NewClient(append(clientOptions(o.broker),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.StopProducerOnDataLossDetected(),
		kgo.MaxBufferedRecords(2_000), kgo.ProducerLinger(time.Millisecond))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	random := rand.New(rand.NewSource(o.seed*1_000 + int64(n)))
	for seq := 0; ctx.Err() == nil; {
		burst := 1 + random.Intn(100)
		for range burst {
			i := id{n, seq}
			seq++
			l.mu.Lock()
			l.sent++
			l.mu.Unlock()
			partition := int32(random.Intn(o.partitions))
			r := &kgo.Record{Topic: o.topic, Partition: partition, Value: value(i)}
			cl.Produce(context.Background(), r, func(r *kgo.Record, err error) { l.report(i, r, err) })
		}
		time.Sleep(time.Duration(burst) * time.Second / time.Duration(max(o.rate/o.producers, 1)))
	}
	end, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := cl.Flush(end); err != nil {
		return fmt.Errorf("producer %d: records unanswered two minutes after the end: %w", n, err)
	}
	return nil
}
