package nnefc.@{name};

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.List;

/**
 * A session of the network, whose inputs and outputs are float32 of known sizes.
 *
 * <p>A session serves one thread at a time; sessions are independent of each other.
 */
public final class Network implements AutoCloseable {
    static {
        System.loadLibrary("@{name}");
        System.loadLibrary("@{name}_jni");
    }

    private final ByteBuffer[] inputs = buffers(0), outputs = buffers(1);
    private long session;

    /** Creates a session with that many threads; 0 for one on each processor. */
    public Network(int threads) {
        session = create(threads);
    }

    /** Runs the network on arrays in the order of its inputs, and returns one for each output. */
    public synchronized float[][] run(float[]... values) {
        if (session == 0) {
            throw new IllegalStateException("the session is closed");
        }
        if (values.length != inputs.length) {
            throw new IllegalArgumentException("the network has " + inputs.length + " inputs, not " + values.length);
        }
        for (int i = 0; i < inputs.length; i++) {
            if (4L * values[i].length != inputs[i].capacity()) {
                throw new IllegalArgumentException("input " + i + " has " + inputs[i].capacity() / 4 + " elements");
            }
            inputs[i].asFloatBuffer().put(values[i]);
        }
        run(session, inputs, outputs);
        float[][] results = new float[outputs.length][];
        for (int i = 0; i < outputs.length; i++) {
            results[i] = new float[outputs[i].capacity() / 4];
            outputs[i].asFloatBuffer().get(results[i]);
        }
        return results;
    }

    @Override
    public synchronized void close() {
        if (session != 0) {
            destroy(session);
            session = 0;
        }
    }

    /** Memory for all inputs, or all outputs. */
    private static ByteBuffer[] buffers(int output) {
        List<ByteBuffer> made = new ArrayList<>();
        for (int index = 0; bytes(output, index) >= 0; index++) {
            long size = bytes(output, index);
            if (size == 0 || size > Integer.MAX_VALUE) {
                throw new IllegalStateException("tensor " + index + " is not float32 of a known size");
            }
            made.add(ByteBuffer.allocateDirect((int) size).order(ByteOrder.nativeOrder()));
        }
        return made.toArray(new ByteBuffer[0]);
    }

    private static native long create(int threads);

    private static native long bytes(int output, int index);

    private static native void run(long session, ByteBuffer[] inputs, ByteBuffer[] outputs);

    private static native void destroy(long session);
}
