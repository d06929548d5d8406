/* A closed- or open-loop gRPC load generator over plain HTTP/2: distinct requests from a file, each answer checked.
 *
 * h2load sends one body a run and does not read grpc-status. This sends the records of a file in turn and counts an
 * answer only when its trailers say grpc-status 0. One thread, epoll, no dependency: `cc -O2 -o load load.c`.
 *
 *   load ADDRESS PORT PATH RECORDS CONNECTIONS STREAMS SECONDS RATE WRAP
 *
 * RECORDS: per record two little-endian u32, the lengths of the authorization value and of the gRPC messages (framed),
 * then both.
 * RATE: requests a second, 0 = as fast as answers come. Latencies then count from the time a request was due.
 * WRAP: 1 = begin again at the end of the records, 0 = stop there. Prints one line of JSON. */

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum { DATA = 0, HEADERS = 1, RST_STREAM = 3, SETTINGS = 4, PING = 6, GOAWAY = 7, WINDOW_UPDATE = 8, CONTINUATION = 9 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8, PRIORITY = 32 };
enum { MAX_CONNECTIONS = 256, MAX_STREAMS = 256, FRAME = 16384, WINDOW = 0x7fffffff };

struct stream { uint32_t id; double due; int busy; int answered; };
struct connection {
  int fd, streams_busy;
  uint32_t next_id;
  int64_t window;            /* bytes that the server lets us send */
  int64_t received;          /* since our last WINDOW_UPDATE */
  uint8_t *out; size_t out_start, out_end, out_size;
  uint8_t *in; size_t in_end, in_size;
  struct stream streams[MAX_STREAMS];
  int writing;               /* EPOLLOUT is asked for */
};
struct record { const uint8_t *authorization, *message; uint32_t authorization_size, message_size; };

static struct connection connections[MAX_CONNECTIONS];
static struct record *records;
static size_t record_count, sent, done, failed, bytes_in, latency_size;
static float *latencies;
static char first_failure[160];
static const char *path, *authority;
static int connection_count, stream_count, wraps, poller;
static double rate, started, ends, last;

static double now(void) {
  struct timespec at;
  clock_gettime(CLOCK_MONOTONIC, &at);
  return (double)at.tv_sec + (double)at.tv_nsec / 1e9;
}

static void die(const char *what) {
  fprintf(stderr, "load: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void fail(const char *what, int code) {
  if (!first_failure[0]) snprintf(first_failure, sizeof first_failure, "%s %d", what, code);
  failed++;
}

/* Output */

static void put(struct connection *c, const void *bytes, size_t size) {
  if (c->out_end + size > c->out_size) {
    memmove(c->out, c->out + c->out_start, c->out_end - c->out_start);
    c->out_end -= c->out_start;
    c->out_start = 0;
    while (c->out_end + size > c->out_size) c->out = realloc(c->out, c->out_size *= 2);
  }
  memcpy(c->out + c->out_end, bytes, size);
  c->out_end += size;
}

static void put_u32(struct connection *c, uint32_t value) {
  uint32_t big = htonl(value);
  put(c, &big, 4);
}

static void put_frame(struct connection *c, size_t size, int type, int flags, uint32_t stream) {
  uint8_t head[5] = {(uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size, (uint8_t)type, (uint8_t)flags};
  put(c, head, 5);
  put_u32(c, stream);
}

static size_t integer(uint8_t *at, uint8_t first, int prefix, size_t value) {
  size_t most = (1u << prefix) - 1, n = 1;
  if (value < most) { at[0] = (uint8_t)(first | value); return 1; }
  at[0] = (uint8_t)(first | most);
  for (value -= most; value >= 128; value >>= 7) at[n++] = (uint8_t)(value | 128);
  at[n++] = (uint8_t)value;
  return n;
}

static size_t text(uint8_t *at, const void *bytes, size_t size) {
  size_t n = integer(at, 0, 7, size);
  memcpy(at + n, bytes, size);
  return n + size;
}

/* Literals without indexing: no state, so that a record's headers are its own. */
static void put_headers(struct connection *c, uint32_t stream, const struct record *r) {
  static uint8_t block[1 << 16];
  size_t n = 0;
  block[n++] = 0x83; /* :method POST */
  block[n++] = 0x86; /* :scheme http */
  n += integer(block + n, 0, 4, 4);
  n += text(block + n, path, strlen(path));
  n += integer(block + n, 0, 4, 1);
  n += text(block + n, authority, strlen(authority));
  n += integer(block + n, 0, 4, 31);
  n += text(block + n, "application/grpc", 16);
  block[n++] = 0;
  n += text(block + n, "te", 2);
  n += text(block + n, "trailers", 8);
  if (r->authorization_size) {
    n += integer(block + n, 0, 4, 23);
    n += text(block + n, r->authorization, r->authorization_size);
  }
  put_frame(c, n, HEADERS, END_HEADERS, stream);
  put(c, block, n);
}

static void put_message(struct connection *c, uint32_t stream, const struct record *r) {
  c->window -= (int64_t)r->message_size;
  for (size_t at = 0; at < r->message_size;) {
    size_t size = r->message_size - at < FRAME ? r->message_size - at : FRAME;
    put_frame(c, size, DATA, at + size == r->message_size ? END_STREAM : 0, stream);
    put(c, r->message + at, size);
    at += size;
  }
}

static void flush(struct connection *c) {
  while (c->out_start < c->out_end) {
    ssize_t n = write(c->fd, c->out + c->out_start, c->out_end - c->out_start);
    if (n < 0) {
      if (errno == EAGAIN) break;
      die("write");
    }
    c->out_start += (size_t)n;
  }
  if (c->out_start == c->out_end) c->out_start = c->out_end = 0;
  int writing = c->out_start < c->out_end;
  if (writing != c->writing) {
    struct epoll_event e = {.events = EPOLLIN | (writing ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(poller, EPOLL_CTL_MOD, c->fd, &e);
    c->writing = writing;
  }
}

/* Requests */

static int may_send(double at) {
  if (!wraps && sent >= record_count) return 0;
  if (rate > 0) return started + (double)sent / rate <= at && started + (double)sent / rate < ends;
  return at < ends;
}

static int send_one(struct connection *c, double at) {
  const struct record *r = &records[sent % record_count];
  if (c->streams_busy >= stream_count || c->window < (int64_t)r->message_size) return 0;
  struct stream *s = c->streams;
  while (s->busy) s++;
  s->busy = 1;
  s->answered = 0;
  s->id = c->next_id;
  s->due = rate > 0 ? started + (double)sent / rate : at;
  c->next_id += 2;
  c->streams_busy++;
  put_headers(c, s->id, r);
  put_message(c, s->id, r);
  sent++;
  return 1;
}

static void send_due(void) {
  static int turn;
  double at = now();
  for (int idle = 0; idle < connection_count && may_send(at);) {
    turn = (turn + 1) % connection_count;
    idle = send_one(&connections[turn], at) ? 0 : idle + 1;
  }
  for (int i = 0; i < connection_count; i++)
    if (connections[i].out_end) flush(&connections[i]);
}

/* Answers */

static int grpc_status(const uint8_t *block, size_t size) {
  static const uint8_t name[] = "\x0bgrpc-status"; /* never Huffman-coded: gRPC's core does not */
  for (size_t i = 0; i + 14 <= size; i++)
    if (!memcmp(block + i, name, 12)) {
      int digits = block[i + 12], code = 0;
      if (digits > 2 || i + 13 + (size_t)digits > size) return -1;
      for (int d = 0; d < digits; d++) code = code * 10 + block[i + 13 + d] - '0';
      return code;
    }
  return -1;
}

static void finish(struct connection *c, uint32_t id, int status, const char *how) {
  for (struct stream *s = c->streams; s < c->streams + stream_count; s++)
    if (s->busy && s->id == id) {
      if (status == 0 && s->answered) {
        if (done == latency_size) latencies = realloc(latencies, (latency_size *= 2) * sizeof *latencies);
        last = now();
        latencies[done++] = (float)(last - s->due);
      } else {
        fail(how, status);
      }
      s->busy = 0;
      c->streams_busy--;
      return;
    }
}

static void take_settings(struct connection *c, const uint8_t *at, size_t size) {
  (void)at, (void)size; /* our messages are smaller than any stream's window */
  put_frame(c, 0, SETTINGS, ACK, 0);
}

static void take(struct connection *c, int type, int flags, uint32_t id, const uint8_t *at, size_t size) {
  if (type == DATA) {
    c->received += (int64_t)size;
    if (c->received > WINDOW / 2) {
      put_frame(c, 4, WINDOW_UPDATE, 0, 0);
      put_u32(c, (uint32_t)c->received);
      c->received = 0;
    }
    for (struct stream *s = c->streams; s < c->streams + stream_count; s++)
      if (s->busy && s->id == id) s->answered = 1;
    if (flags & END_STREAM) finish(c, id, -1, "no trailers");
  } else if (type == HEADERS) {
    if (!(flags & END_HEADERS)) finish(c, id, -1, "long headers");
    else if (flags & END_STREAM) finish(c, id, grpc_status(at, size), "grpc-status");
  } else if (type == RST_STREAM) {
    finish(c, id, (int)at[3], "reset");
  } else if (type == SETTINGS && !(flags & ACK)) {
    take_settings(c, at, size);
  } else if (type == PING && !(flags & ACK)) {
    put_frame(c, 8, PING, ACK, 0);
    put(c, at, 8);
  } else if (type == WINDOW_UPDATE && id == 0) {
    uint32_t more;
    memcpy(&more, at, 4);
    c->window += ntohl(more) & 0x7fffffff;
  } else if (type == GOAWAY) {
    errno = 0;
    die("the server sent GOAWAY");
  }
}

static void receive(struct connection *c) {
  for (;;) {
    if (c->in_end == c->in_size) c->in = realloc(c->in, c->in_size *= 2);
    ssize_t n = read(c->fd, c->in + c->in_end, c->in_size - c->in_end);
    if (n == 0) { errno = 0; die("the server closed the connection"); }
    if (n < 0) {
      if (errno == EAGAIN) break;
      die("read");
    }
    c->in_end += (size_t)n;
    bytes_in += (size_t)n;
    size_t at = 0;
    while (c->in_end - at >= 9) {
      const uint8_t *f = c->in + at;
      size_t size = (size_t)f[0] << 16 | (size_t)f[1] << 8 | f[2];
      if (c->in_end - at < 9 + size) break;
      uint32_t id = ((uint32_t)f[5] << 24 | (uint32_t)f[6] << 16 | (uint32_t)f[7] << 8 | f[8]) & 0x7fffffff;
      take(c, f[3], f[4], id, f + 9, size);
      at += 9 + size;
    }
    memmove(c->in, c->in + at, c->in_end - at);
    c->in_end -= at;
  }
}

/* Setting up and telling */

static void open_connection(struct connection *c, const char *address, int port) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  int one = 1;
  inet_pton(AF_INET, address, &to.sin_addr);
  c->fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(c->fd, (struct sockaddr *)&to, sizeof to)) die("connect");
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  fcntl(c->fd, F_SETFL, O_NONBLOCK);
  c->out = malloc(c->out_size = 1 << 16);
  c->in = malloc(c->in_size = 1 << 18);
  c->next_id = 1;
  c->window = 65535;
  put(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24);
  put_frame(c, 12, SETTINGS, 0, 0);
  put(c, "\0\1\0\0\0\0", 6);             /* no header table: answers' headers are literal */
  put(c, "\0\4\x7f\xff\xff\xff", 6);     /* streams' windows */
  put_frame(c, 4, WINDOW_UPDATE, 0, 0);
  put_u32(c, WINDOW - 65535);
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = c};
  epoll_ctl(poller, EPOLL_CTL_ADD, c->fd, &e);
  flush(c);
}

static void read_records(const char *name) {
  int fd = open(name, O_RDONLY);
  struct stat about;
  if (fd < 0 || fstat(fd, &about)) die(name);
  const uint8_t *bytes = mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
  if (bytes == MAP_FAILED) die("mmap");
  size_t room = 1024;
  records = malloc(room * sizeof *records);
  for (size_t at = 0; at + 8 <= (size_t)about.st_size;) {
    uint32_t sizes[2];
    memcpy(sizes, bytes + at, 8);
    if (record_count == room) records = realloc(records, (room *= 2) * sizeof *records);
    records[record_count++] = (struct record){bytes + at + 8, bytes + at + 8 + sizes[0], sizes[0], sizes[1]};
    if (sizes[1] > 60000 || sizes[0] > 32768) { errno = EMSGSIZE; die("record"); }
    at += 8 + sizes[0] + (size_t)sizes[1];
  }
  if (!record_count) { errno = EINVAL; die("no records"); }
}

static int by_size(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return (x > y) - (x < y);
}

static double share(double part) {
  return done ? (double)latencies[(size_t)(part * (double)(done - 1))] * 1000 : 0;
}

static int busy(void) {
  int streams = 0;
  for (int i = 0; i < connection_count; i++) streams += connections[i].streams_busy;
  return streams;
}

int main(int argc, char **argv) {
  if (argc != 10) {
    fprintf(stderr, "load ADDRESS PORT PATH RECORDS CONNECTIONS STREAMS SECONDS RATE WRAP\n");
    return 2;
  }
  path = argv[3];
  authority = argv[1];
  connection_count = atoi(argv[5]);
  stream_count = atoi(argv[6]);
  rate = atof(argv[8]);
  wraps = atoi(argv[9]);
  if (connection_count > MAX_CONNECTIONS || stream_count > MAX_STREAMS) return 2;
  read_records(argv[4]);
  latencies = malloc((latency_size = 1 << 16) * sizeof *latencies);
  poller = epoll_create1(0);
  int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  struct itimerspec every = {.it_interval.tv_nsec = rate > 0 ? 200000 : 10000000, .it_value.tv_nsec = 1};
  timerfd_settime(timer, 0, &every, NULL);
  struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};
  epoll_ctl(poller, EPOLL_CTL_ADD, timer, &e);
  for (int i = 0; i < connection_count; i++) open_connection(&connections[i], argv[1], atoi(argv[2]));
  started = now();
  ends = started + atof(argv[7]);
  last = started;
  for (;;) {
    send_due();
    double at = now();
    int sending = at < ends && (wraps || sent < record_count);
    if (!sending && (!busy() || at > ends + 10)) break;
    struct epoll_event ready[64];
    int n = epoll_wait(poller, ready, 64, 100);
    for (int i = 0; i < n; i++) {
      struct connection *c = ready[i].data.ptr;
      uint64_t ticks;
      if (!c) { if (read(timer, &ticks, 8) < 0 && errno != EAGAIN) die("timer"); continue; }
      if (ready[i].events & EPOLLOUT) flush(c);
      if (ready[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) receive(c);
    }
  }
  int lost = busy();
  for (; lost; lost--) fail("no answer", -1);
  qsort(latencies, done, sizeof *latencies, by_size);
  printf("{\"answered\": %zu, \"failed\": %zu, \"first_failure\": \"%s\", \"seconds\": %.6f, \"p50_ms\": %.4f,"
         " \"p90_ms\": %.4f, \"p99_ms\": %.4f, \"max_ms\": %.4f, \"bytes\": %zu, \"records\": %zu}\n",
         done, failed, first_failure, last - started, share(0.5), share(0.9), share(0.99), share(1), bytes_in,
         record_count);
  return 0;
}
