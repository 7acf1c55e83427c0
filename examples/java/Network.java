import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_FLOAT;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import java.lang.foreign.AddressLayout;
import java.lang.foreign.Arena;
import java.lang.foreign.FunctionDescriptor;
import java.lang.foreign.Linker;
import java.lang.foreign.MemoryLayout;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SymbolLookup;
import java.lang.invoke.MethodHandle;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/**
 * A session of a compiled network whose inputs and outputs are float32 with known sizes. Java 22 or newer; nothing else.
 *
 * <p>A session serves one thread at a time; sessions of one library are independent of each other.
 */
public final class Network implements AutoCloseable {
    private static final AddressLayout TEXT = ADDRESS.withTargetLayout(
            MemoryLayout.sequenceLayout(Long.MAX_VALUE, java.lang.foreign.ValueLayout.JAVA_BYTE));
    /** nnefc_tensor: where its members are. */
    private static final long NAME = 0, TYPE = 8, BYTES = 24, TENSOR = 32;
    /** nnefc_description: likewise. */
    private static final long INPUTS = 32, OUTPUTS = 40, INPUT_COUNT = 56, OUTPUT_COUNT = 60;
    private static final int FLOAT32 = 12;

    private final Arena arena = Arena.ofShared();
    private final MethodHandle run, destroy, lastError;
    private final MemorySegment session, inputs, outputs;
    private final List<MemorySegment> arguments, results;

    /** Opens a library and creates a session with that many threads; 0 for one on each processor. */
    public Network(Path library, int threads) {
        Linker linker = Linker.nativeLinker();
        SymbolLookup symbols = SymbolLookup.libraryLookup(library, arena);
        run = handle(linker, symbols, "nnefc_run", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS, ADDRESS));
        destroy = handle(linker, symbols, "nnefc_destroy", FunctionDescriptor.of(JAVA_INT, ADDRESS));
        lastError = handle(linker, symbols, "nnefc_last_error", FunctionDescriptor.of(TEXT, ADDRESS));
        MethodHandle create =
                handle(linker, symbols, "nnefc_create", FunctionDescriptor.of(JAVA_INT, ADDRESS, ADDRESS));
        MethodHandle describe = handle(linker, symbols, "nnefc_describe", FunctionDescriptor.of(ADDRESS));
        MemorySegment options = arena.allocate(24, 8); // nnefc_options up to workspace_bytes, which all versions take
        options.set(JAVA_INT, 0, 24);
        options.set(JAVA_INT, 4, threads);
        MemorySegment place = arena.allocate(ADDRESS);
        try {
            MemorySegment description = ((MemorySegment) describe.invokeExact()).reinterpret(64);
            arguments = tensors(description, INPUTS, INPUT_COUNT);
            results = tensors(description, OUTPUTS, OUTPUT_COUNT);
            int status = (int) create.invokeExact(options, place);
            session = place.get(ADDRESS, 0);
            check(status, MemorySegment.NULL);
        } catch (RuntimeException error) {
            arena.close();
            throw error;
        } catch (Throwable error) {
            throw new AssertionError(error); // these functions of C throw nothing
        }
        inputs = pointers(arguments);
        outputs = pointers(results);
    }

    /** Runs the network on arrays in the order of its inputs, and returns one for each output. */
    public synchronized float[][] run(float[]... values) {
        if (values.length != arguments.size()) {
            throw new IllegalArgumentException("the network has " + arguments.size() + " inputs");
        }
        for (int i = 0; i < values.length; i++) {
            MemorySegment argument = arguments.get(i);
            if (values[i].length * 4L != argument.byteSize()) {
                throw new IllegalArgumentException("input " + i + " has " + argument.byteSize() / 4 + " elements");
            }
            argument.copyFrom(MemorySegment.ofArray(values[i]));
        }
        try {
            check((int) run.invokeExact(session, inputs, outputs), session);
        } catch (RuntimeException error) {
            throw error;
        } catch (Throwable error) {
            throw new AssertionError(error);
        }
        return results.stream().map(result -> result.toArray(JAVA_FLOAT)).toArray(float[][]::new);
    }

    @Override
    public synchronized void close() {
        if (!arena.scope().isAlive()) {
            return;
        }
        try {
            int status = (int) destroy.invokeExact(session);
        } catch (Throwable error) {
            throw new AssertionError(error);
        }
        arena.close();
    }

    private static MethodHandle handle(Linker linker, SymbolLookup symbols, String name, FunctionDescriptor type) {
        MemorySegment function = symbols.find(name)
                .orElseThrow(() -> new IllegalArgumentException("no library of nnefc: it has no function " + name));
        return linker.downcallHandle(function, type);
    }

    /** Memory for the tensors that the description lists at these positions. */
    private List<MemorySegment> tensors(MemorySegment description, long list, long count) {
        int length = description.get(JAVA_INT, count);
        MemorySegment tensors = description.get(ADDRESS, list).reinterpret(length * TENSOR);
        List<MemorySegment> made = new ArrayList<>();
        for (long at = 0; at < length * TENSOR; at += TENSOR) {
            if (tensors.get(JAVA_INT, at + TYPE) != FLOAT32 || tensors.get(JAVA_LONG, at + BYTES) == 0) {
                String name = tensors.get(TEXT, at + NAME).getString(0);
                throw new IllegalArgumentException("'" + name + "' is not float32 of a known size");
            }
            made.add(arena.allocate(tensors.get(JAVA_LONG, at + BYTES), 64));
        }
        return made;
    }

    private MemorySegment pointers(List<MemorySegment> segments) {
        MemorySegment array = arena.allocate(ADDRESS, segments.size());
        for (int i = 0; i < segments.size(); i++) {
            array.setAtIndex(ADDRESS, i, segments.get(i));
        }
        return array;
    }

    private void check(int status, MemorySegment of) throws Throwable {
        if (status != 0) {
            throw new IllegalStateException(((MemorySegment) lastError.invokeExact(of)).getString(0));
        }
    }
}
