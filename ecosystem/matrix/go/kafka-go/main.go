// kafka-go; it has no idempotent producer, and reads an empty key or value as nil. Usage: kafka-go BROKER
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/segmentio/kafka-go"

	"matrix/flow"
)

type client struct {
	broker string
	api    *kafka.Client
}

var serial atomic.Int64

func bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 30*time.Second)
}

func (c client) Create(topic string, partitions int) error {
	ctx, cancel := bounded()
	defer cancel()
	conf := kafka.TopicConfig{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}
	r, err := c.api.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{conf}})
	if err != nil {
		return err
	}
	return r.Errors[topic]
}

func (c client) Produce(topic string, records []flow.Record, m flow.Mode) error {
	codecs := map[string]kafka.Compression{"gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.Lz4, "zstd": kafka.Zstd}
	batch := make([]kafka.Message, len(records))
	for i, r := range records {
		batch[i] = kafka.Message{Key: r.Key, Value: r.Value, WriterData: i}
		for _, h := range r.Headers {
			batch[i].Headers = append(batch[i].Headers, kafka.Header{Key: h.Key, Value: h.Value})
		}
	}
	acks := kafka.RequireAll
	if m.NoAcks {
		acks = kafka.RequireNone
	}
	acked := make(chan kafka.Message, len(records))
	w := &kafka.Writer{
		Addr: kafka.TCP(c.broker), Topic: topic, AllowAutoTopicCreation: true, Compression: codecs[m.Codec],
		Balancer:     kafka.BalancerFunc(func(m kafka.Message, _ ...int) int { return records[m.WriterData.(int)].Partition }),
		RequiredAcks: acks, BatchTimeout: 10 * time.Millisecond,
		Completion: func(ms []kafka.Message, err error) {
			for _, m := range ms {
				if err == nil {
					acked <- m
				}
			}
		},
	}
	ctx, cancel := bounded()
	defer cancel()
	var err error
	for range 40 { // a topic that is being created is reported as unknown at once
		err = w.WriteMessages(ctx, batch...)
		if !errors.Is(err, kafka.UnknownTopicOrPartition) && !errors.Is(err, kafka.LeaderNotAvailable) {
			break
		}
		time.Sleep(250 * time.Millisecond)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	close(acked)
	n, next := 0, map[int]int64{}
	for a := range acked {
		records[a.WriterData.(int)].Offset = a.Offset
		n++
	}
	for i := range records {
		if m.NoAcks {
			records[i].Offset = next[records[i].Partition]
			next[records[i].Partition]++
		}
	}
	if n != len(records) {
		return fmt.Errorf("%d of %d acknowledged", n, len(records))
	}
	return nil
}

func (c client) Consume(topic string, partitions, count int) (got []flow.Record, err error) {
	for p := range partitions {
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{c.broker}, Topic: topic, Partition: p,
			MaxWait: 500 * time.Millisecond})
		for range count / partitions {
			ctx, cancel := bounded()
			m, err := r.ReadMessage(ctx)
			cancel()
			if err != nil {
				r.Close()
				return got, err
			}
			out := flow.Record{Partition: m.Partition, Offset: m.Offset, Key: m.Key, Value: m.Value}
			for _, h := range m.Headers {
				out.Headers = append(out.Headers, flow.Header{Key: h.Key, Value: h.Value})
			}
			got = append(got, out)
		}
		r.Close()
	}
	return got, nil
}

// member: the reader does not tell its assignment, so DescribeGroups is asked, by client id.
type member struct {
	c                client
	r                *kafka.Reader
	id, group, topic string
	cancel           context.CancelFunc
	done             chan struct{}
}

func (c client) Member(group, topic string, see func([]byte)) (flow.Member, error) {
	id := fmt.Sprintf("member-%d", serial.Add(1))
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{c.broker}, GroupID: group, Topic: topic,
		StartOffset: kafka.FirstOffset, MaxWait: 500 * time.Millisecond,
		Dialer: &kafka.Dialer{ClientID: id, Timeout: 10 * time.Second, DualStack: true}})
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{c: c, r: r, id: id, group: group, topic: topic, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(m.done)
		for {
			msg, err := r.ReadMessage(ctx) // reads and commits
			if err != nil {
				return
			}
			see(msg.Value)
		}
	}()
	return m, nil
}

func (m *member) Assigned() (out []int) {
	ctx, cancel := bounded()
	defer cancel()
	d, err := m.c.api.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{m.group}})
	if err != nil || len(d.Groups) != 1 {
		return nil
	}
	for _, x := range d.Groups[0].Members {
		for _, t := range x.MemberAssignments.Topics {
			if x.ClientID == m.id && t.Topic == m.topic {
				out = append(out, t.Partitions...)
			}
		}
	}
	return out
}

func (m *member) Stop() error {
	m.cancel()
	<-m.done
	return m.r.Close()
}

func (c client) Committed(group, topic string, partitions int) ([]int64, error) {
	ctx, cancel := bounded()
	defer cancel()
	ps, out := []int{}, make([]int64, partitions)
	for p := range partitions {
		ps = append(ps, p)
	}
	r, err := c.api.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: ps}})
	if err != nil {
		return nil, err
	}
	for _, p := range r.Topics[topic] {
		out[p.Partition] = p.CommittedOffset
	}
	return out, r.Error
}

func main() {
	c := client{os.Args[1], &kafka.Client{Addr: kafka.TCP(os.Args[1]), Timeout: 20 * time.Second}}
	flow.Main(c, flow.Plan{Name: "kafka-go", Version: flow.ModuleVersion("github.com/segmentio/kafka-go"),
		Codecs: []string{"gzip", "snappy", "lz4", "zstd"}, Acks0: true, NoNullBytes: true,
		NoNullHeaders: true})
}
