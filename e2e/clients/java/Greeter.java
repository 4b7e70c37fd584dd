import com.google.common.io.ByteStreams;
import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.InsecureServerCredentials;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import io.grpc.xds.XdsServerBuilder;
import io.grpc.xds.XdsServerCredentials;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;

/**
 * A gRPC client or server that takes its configuration over xDS, in grpc-java.
 *
 * <pre>
 * Greeter dial         a client of xds:///greeter.local
 * Greeter serve PORT   a server
 * </pre>
 *
 * How it is spoken to: ../README.md.
 */
final class Greeter {
  static final MethodDescriptor<String, String> GREET = MethodDescriptor.<String, String>newBuilder()
      .setType(MethodDescriptor.MethodType.UNARY)
      .setFullMethodName("e2e.Greeter/Greet")
      .setRequestMarshaller(new Text())
      .setResponseMarshaller(new Text())
      .build();

  /** A message is the text itself. */
  static final class Text implements MethodDescriptor.Marshaller<String> {
    @Override public InputStream stream(String text) {
      return new ByteArrayInputStream(text.getBytes(StandardCharsets.UTF_8));
    }

    @Override public String parse(InputStream in) {
      try {
        return new String(ByteStreams.toByteArray(in), StandardCharsets.UTF_8);
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  }

  /** Reports how one call ended. */
  static final class Outcome implements StreamObserver<String> {
    final String id;

    Outcome(String id) {
      this.id = id;
    }

    @Override public void onNext(String name) {
      say("\"from\":" + quoted(name));
    }

    @Override public void onError(Throwable t) {
      Status s = Status.fromThrowable(t);
      say("\"code\":" + s.getCode().value() + ",\"error\":" + quoted(String.valueOf(s.getDescription())));
    }

    @Override public void onCompleted() {}

    void say(String fields) {
      System.out.println("{\"id\":" + id + "," + fields + "}");
    }
  }

  static String quoted(String s) {
    StringBuilder b = new StringBuilder("\"");
    s.chars().forEach(c -> b.append(c < ' ' || c == '"' || c == '\\' ? String.format("\\u%04x", c) : "" + (char) c));
    return b.append('"').toString();
  }

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    if (args[0].equals("dial")) {
      dial(in);
    } else {
      serve(in, Integer.parseInt(args[1]));
    }
    System.exit(0);
  }

  static void dial(BufferedReader in) throws IOException {
    ManagedChannel channel = Grpc.newChannelBuilder("xds:///greeter.local", InsecureChannelCredentials.create()).build();
    for (String line; (line = in.readLine()) != null; ) {
      String[] idAndMillis = line.split(" ");
      CallOptions within = CallOptions.DEFAULT.withDeadlineAfter(Long.parseLong(idAndMillis[1]), TimeUnit.MILLISECONDS);
      ClientCalls.asyncUnaryCall(channel.newCall(GREET, within), "", new Outcome(idAndMillis[0]));
    }
  }

  static void serve(BufferedReader in, int port) throws IOException {
    ServerServiceDefinition greeter = ServerServiceDefinition.builder("e2e.Greeter")
        .addMethod(GREET, ServerCalls.asyncUnaryCall((request, answer) -> {
          answer.onNext("java");
          answer.onCompleted();
        }))
        .build();
    InetSocketAddress loopback = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
    Server server = XdsServerBuilder.forAddress(loopback, XdsServerCredentials.create(InsecureServerCredentials.create()))
        .addService(greeter)
        .build();
    server.start(); // returns when it serves, which is when its listener came
    while (in.readLine() != null) {}
    server.shutdownNow();
  }
}
