// franz-go. Usage: franz-go BROKER
package main

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"matrix/flow"
)

type client struct{ broker string }

func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

func (c client) open(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(opts, kgo.SeedBrokers(c.broker))...)
}

func (c client) Create(topic string, partitions int) error {
	cl, err := c.open()
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := bounded()
	defer cancel()
	_, err = kadm.NewClient(cl).CreateTopic(ctx, int32(partitions), 1, nil, topic)
	return err
}

func (c client) Produce(topic string, records []flow.Record, m flow.Mode) error {
	opts := []kgo.Opt{kgo.AllowAutoTopicCreation(), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	codecs := map[string]kgo.CompressionCodec{"gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()}
	if m.Codec != "" {
		opts = append(opts, kgo.ProducerBatchCompression(codecs[m.Codec]))
	}
	if m.Idempotent != nil && !*m.Idempotent {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	cl, err := c.open(opts...)
	if err != nil {
		return err
	}
	defer cl.Close()
	batch := make([]*kgo.Record, len(records))
	for i, r := range records {
		batch[i] = &kgo.Record{Topic: topic, Partition: int32(r.Partition), Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			batch[i].Headers = append(batch[i].Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	ctx, cancel := bounded()
	defer cancel()
	if err := cl.ProduceSync(ctx, batch...).FirstErr(); err != nil {
		return err
	}
	for i, b := range batch {
		records[i].Offset = b.Offset
	}
	return nil
}

func (c client) Consume(topic string, partitions, count int) (got []flow.Record, err error) {
	cl, err := c.open(kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := bounded()
	defer cancel()
	for len(got) < count {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return got, err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			out := flow.Record{Partition: int(r.Partition), Offset: r.Offset, Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				out.Headers = append(out.Headers, flow.Header{Key: h.Key, Value: h.Value})
			}
			got = append(got, out)
		})
	}
	return got, nil
}

type member struct {
	cl       *kgo.Client
	mu       sync.Mutex
	assigned map[int]bool
	done     chan struct{}
	cancel   context.CancelFunc
}

func (c client) Member(group, topic string, see func([]byte)) (flow.Member, error) {
	m := &member{assigned: map[int]bool{}, done: make(chan struct{})}
	set := func(owned bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(ctx context.Context, cl *kgo.Client, ps map[string][]int32) {
			if !owned {
				_ = cl.CommitUncommittedOffsets(ctx)
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			for _, p := range ps[topic] {
				if owned {
					m.assigned[int(p)] = true
				} else {
					delete(m.assigned, int(p))
				}
			}
		}
	}
	cl, err := c.open(kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.OnPartitionsAssigned(set(true)), kgo.OnPartitionsRevoked(set(false)), kgo.OnPartitionsLost(set(false)))
	if err != nil {
		return nil, err
	}
	m.cl = cl
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	go func() {
		defer close(m.done)
		for ctx.Err() == nil {
			cl.PollFetches(ctx).EachRecord(func(r *kgo.Record) { see(r.Value) })
		}
	}()
	return m, nil
}

func (m *member) Assigned() (out []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for p := range m.assigned {
		out = append(out, p)
	}
	return out
}

func (m *member) Stop() error {
	m.cancel()
	<-m.done
	ctx, cancel := bounded()
	defer cancel()
	err := m.cl.CommitUncommittedOffsets(ctx)
	m.cl.Close()
	return err
}

func (c client) Committed(group, topic string, partitions int) (out []int64, err error) {
	cl, err := c.open()
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := bounded()
	defer cancel()
	found, err := kadm.NewClient(cl).FetchOffsets(ctx, group)
	if err != nil {
		return nil, err
	}
	for p := range partitions {
		o, ok := found.Lookup(topic, int32(p))
		if !ok {
			o.At = -1
		}
		out = append(out, o.At)
	}
	return out, nil
}

func main() {
	flow.Main(client{os.Args[1]}, flow.Plan{
		Name: "franz-go", Version: flow.ModuleVersion("github.com/twmb/franz-go"),
		Codecs: []string{"gzip", "snappy", "lz4", "zstd"}, Idempotent: true, Plain: true,
	})
}
